"""`python -m flows.ui`: both servers up, a deployment started over the API and carried out by the worker."""

import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.support.wait import WebDriverWait
from workspace import Workspace

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Served:
    workspace: Workspace
    prefect: str
    mlflow: str


def free() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def answers(url: str) -> bool:
    try:
        return urllib.request.urlopen(url, timeout=5).status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def served(played: Workspace) -> Iterator[Served]:
    ports = free(), free()
    process = played.start("python", "-m", "flows.ui", "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1]))
    prefect, mlflow = (f"http://127.0.0.1:{port}" for port in ports)
    end = time.monotonic() + 180
    while not (answers(f"{mlflow}/health") and "Ctrl-C" in (played.root / "started.log").read_text()):
        assert process.poll() is None, (played.root / "started.log").read_text()
        assert time.monotonic() < end, (played.root / "started.log").read_text()
        time.sleep(0.5)
    yield Served(played, prefect, mlflow)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert not answers(f"{prefect}/api/health")
    assert not answers(f"{mlflow}/health")


def test_a_deployment_started_over_the_api_is_carried_out_by_the_worker(served: Served) -> None:
    made = served.workspace.root / "data/partitions/groups/partition.json"
    before = made.stat().st_mtime_ns
    with temporary_settings({PREFECT_API_URL: f"{served.prefect}/api"}), get_client(sync_client=True) as client:
        known = {f"{deployment.name}" for deployment in client.read_deployments()}
        assert known == {"fedcore"}
        deployment = client.read_deployment_by_name("partition/fedcore")
        run = client.create_flow_run_from_deployment(deployment.id, parameters={"name": "groups"})
        end = time.monotonic() + 180
        while not (state := client.read_flow_run(run.id).state).is_final():
            assert time.monotonic() < end, (served.workspace.root / "started.log").read_text()[-3000:]
            time.sleep(0.5)
    assert state.is_completed(), state
    assert made.stat().st_mtime_ns > before


def test_a_stage_that_is_run_meanwhile_is_recorded_there(served: Served) -> None:
    served.workspace.run("python", "-m", "flows.partition", "groups")
    notes = Path(served.workspace.root, ".fedcore/prefect/servers").iterdir()
    assert not [note.name for note in notes if note.name.isdigit()]


@pytest.mark.browser
@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("prefect/runs", ["federate-cp_cfl", "Completed"]),
        ("prefect/deployments", ["pipeline", "federate", "fedcore"]),
        ("mlflow/#/experiments/1/runs", ["mini", "cp_cfl", "ifca_fedavg", "encoder simclr"]),
        ("mlflow/#/models", ["mini-fedavg-global", "mini-cp_cfl-cluster1"]),
    ],
)
def test_both_pages_show_the_finished_study(
    served: Served, chromium: webdriver.Chrome, page: str, words: list[str]
) -> None:
    server, _, path = page.partition("/")
    chromium.set_window_size(1400, 1600)  # lists show what fits
    chromium.get(f"{getattr(served, server)}/{path}")

    def shown(browser: webdriver.Chrome) -> bool:
        body = browser.find_element("css selector", "body").text
        return all(word in body for word in words)

    WebDriverWait(chromium, 60, ignored_exceptions=[StaleElementReferenceException]).until(shown)

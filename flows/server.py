"""The Prefect server of a workspace: the one that is configured, else one that lives as long as whoever needs it.

Starting a server takes longer than most stages of a small study, so all stages of one `dvc repro` share one.
"""

import http.client
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
from filelock import FileLock
from prefect.settings import PREFECT_API_URL, temporary_settings

from tasks import layout

START_SECONDS = 120.0  # a first start makes a database
SHARED = "shared"


class UnavailableError(RuntimeError):
    """No Prefect server answers, and none could be started."""


@contextmanager
def at_hand() -> Iterator[str]:
    """A Prefect server's address, for this process and those it starts. Raises UnavailableError if there is none."""
    url = PREFECT_API_URL.value() or find() or start(owner())
    if not healthy(url):
        raise UnavailableError(f"PREFECT_API_URL: {url} does not answer; start it, or unset the variable")
    before = os.environ.get("PREFECT_API_URL")
    os.environ["PREFECT_API_URL"] = url
    try:
        with temporary_settings({PREFECT_API_URL: url}):
            yield url
    finally:
        if before is None:
            del os.environ["PREFECT_API_URL"]
        else:
            os.environ["PREFECT_API_URL"] = before


def owner() -> int:
    """The process for whose life a new server is wanted: the outermost `dvc` above this one, else this one."""
    for above in reversed(psutil.Process().parents()):
        try:
            if any(Path(word).name == "dvc" for word in above.cmdline()[:3]):
                return int(above.pid)
        except psutil.Error:
            continue
    return os.getpid()


def find() -> str | None:
    """The server that was started for this process, for one above it, or for the whole workspace."""
    family = [str(process.pid) for process in (psutil.Process(), *psutil.Process().parents())]
    for name in (*family, SHARED):
        note = _note(name)
        if note.is_file() and healthy(url := note.read_text()):
            return url
    return None


def start(owner: int) -> str:
    """Start a server that ends when the process `owner` does; returns its address."""
    with FileLock(_note("start").with_suffix(".lock")):  # one at a time: a first start makes the database
        url = find()  # perhaps just started by another
        if url:
            return url
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with (layout.prefect_home() / "server.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.server", str(port), str(owner)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return wait(f"http://127.0.0.1:{port}/api", str(owner), process)


def wait(url: str, name: str, process: subprocess.Popen[bytes]) -> str:
    """Wait until the new server `process` answers and note it under `name`.

    Raises UnavailableError if it ends or that takes too long.
    """
    end = time.monotonic() + START_SECONDS
    while not healthy(url):
        if process.poll() is not None or time.monotonic() > end:
            log = layout.prefect_home() / "server.log"
            raise UnavailableError(f"{url}: a Prefect server did not start within {START_SECONDS:.0f} s; see {log}")
        time.sleep(0.1)
    draft = _note(uuid4().hex)
    draft.write_text(url)
    draft.replace(_note(name))
    return url


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, http.client.HTTPException):
        return False


def serve(port: int) -> subprocess.Popen[bytes]:
    """A Prefect server on loopback, as a child of this process."""
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    page = {"PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api"}  # else its pages ask port 4200
    return subprocess.Popen(command, env={**os.environ, **page})


def forget(name: str) -> None:
    _note(name).unlink(missing_ok=True)


def _note(name: str) -> Path:
    folder = layout.prefect_home() / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def _live(port: int, owner: int) -> None:
    """Serve until `owner` is gone."""
    server = serve(port)
    while psutil.pid_exists(owner) and server.poll() is None:
        time.sleep(0.5)
    forget(str(owner))
    server.terminate()


if __name__ == "__main__":
    _live(int(sys.argv[1]), int(sys.argv[2]))

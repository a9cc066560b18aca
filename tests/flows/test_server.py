"""Which Prefect server a workspace has: notes of servers that were, servers that do not start."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import server


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("left", ["", "\n", "nonsense", "http://127.0.0.1:9/api", "http://[", "file:///etc/passwd"])
def test_a_note_of_a_server_that_is_gone_is_passed_over(left: str) -> None:
    notes = Path(".fedcore/prefect/servers")
    notes.mkdir(parents=True)
    for name in (str(os.getpid()), server.SHARED):
        (notes / name).write_text(left)
    assert server.find() is None


def test_a_server_that_ends_at_once_is_not_waited_for() -> None:
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    with pytest.raises(server.UnavailableError, match=r"did not start .*; see .*server\.log"):
        server.wait("http://127.0.0.1:9/api", "mine", process)
    assert time.monotonic() - began < 10
    assert server.find() is None

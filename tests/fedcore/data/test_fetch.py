import hashlib
import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcore.data.fetch import Archive, FetchError, fetch

BODY = bytes(range(256)) * 4000  # about 1 MB
SHA256 = "sha256:" + hashlib.sha256(BODY).hexdigest()


class Site(http.server.ThreadingHTTPServer):
    """Serves BODY; can cut the first answers short, alter them, or pause in the middle of them."""

    cut = altered = paused = 0  # so many of the first answers
    pause = 0.5  # seconds
    requests = 0

    def archive(self, checksum: str = SHA256) -> Archive:
        return Archive("set/file.bin", (f"http://127.0.0.1:{self.server_port}/file.bin",), checksum)


class Answer(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        site, self.server.requests = self.server, self.server.requests + 1
        body = BODY[:-1] + b"?" if site.requests <= site.altered else BODY
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        if site.requests <= site.paused:
            time.sleep(site.pause)
        if site.requests > site.cut:
            self.wfile.write(body[len(body) // 2 :])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock")}


def test_fetches_once(site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = fetch(site.archive(), tmp_path)
    assert path == tmp_path / "set/file.bin"
    assert path.read_bytes() == BODY
    assert fetch(site.archive(), tmp_path) == path
    assert site.requests == 1
    assert names(tmp_path) == {"file.bin"}
    assert capfd.readouterr() == ("", "")  # quiet, as nobody looks on


@pytest.mark.parametrize("fault", ["cut", "altered"])
def test_a_bad_answer_is_asked_for_again(site: Site, tmp_path: Path, fault: str) -> None:
    setattr(site, fault, 1)
    assert fetch(site.archive(), tmp_path).read_bytes() == BODY
    assert site.requests == 2


@pytest.mark.parametrize(("fault", "message"), [("cut", "cut short after 512000 of 1024000"), ("altered", "sha256 is")])
def test_only_bad_answers_leave_nothing(site: Site, tmp_path: Path, fault: str, message: str) -> None:
    setattr(site, fault, 99)
    with pytest.raises(FetchError, match=f"file.bin .*{message}"):
        fetch(site.archive(), tmp_path)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("content", [BODY[:1000], b"", BODY + b"more"])
def test_a_file_that_is_not_whole_is_fetched_again(site: Site, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin").write_bytes(content)
    assert fetch(site.archive(), tmp_path).read_bytes() == BODY
    assert site.requests == 1


def test_the_next_address_is_tried(site: Site, tmp_path: Path) -> None:
    good = site.archive()
    archive = good._replace(urls=("http://127.0.0.1:9/closed", (tmp_path / "absent").as_uri(), *good.urls))
    assert fetch(archive, tmp_path).read_bytes() == BODY


def test_md5_and_file_addresses(tmp_path: Path) -> None:
    origin = tmp_path / "origin.bin"
    origin.write_bytes(BODY)
    archive = Archive("copy.bin", (origin.as_uri(),), "md5:" + hashlib.md5(BODY).hexdigest())
    assert fetch(archive, tmp_path / "cache").read_bytes() == BODY


def test_unreachable_names_address_and_place(tmp_path: Path) -> None:
    archive = Archive("x.bin", ("http://127.0.0.1:9/x.bin",), SHA256)
    with pytest.raises(FetchError, match=r"x\.bin .*http://127.0.0.1:9/x\.bin: .*refused"):
        fetch(archive, tmp_path)


def started(site: Site, folder: Path) -> subprocess.Popen[bytes]:
    code = f"from fedcore.data.fetch import *; fetch(Archive(*{tuple(site.archive())!r}), Path({str(folder)!r}))"
    return subprocess.Popen([sys.executable, "-c", code])


def test_processes_at_once_fetch_once(site: Site, tmp_path: Path) -> None:
    site.paused = 3
    processes = [started(site, tmp_path) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert site.requests == 1
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


def test_a_killed_fetch_leaves_no_file_and_no_lock(site: Site, tmp_path: Path) -> None:
    site.paused, site.pause = 1, 30
    process = started(site, tmp_path)
    part = tmp_path / "set/.file.bin.part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert names(tmp_path) == {".file.bin.part"}
    assert fetch(site.archive(), tmp_path).read_bytes() == BODY
    assert names(tmp_path) == {"file.bin"}

"""Files from the web: checked, whole or not there at all, and fetched once however many processes ask."""

import hashlib
import http.client
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

_TIMEOUT = 60  # seconds without a byte
_BLOCK = 1 << 16  # bytes


class Archive(NamedTuple):
    """A file that some source publishes."""

    file: str  # where it lies in the folder of its source
    urls: tuple[str, ...]  # tried in this order
    checksum: str  # "md5:..." or "sha256:..."


class FetchError(ValueError):
    """A file that could be fetched from none of its addresses."""


def checksum(path: Path, algorithm: str) -> str:
    """Hex digest of a file; `algorithm` as hashlib names it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def fetch(archive: Archive, folder: Path) -> Path:
    """The path of `archive` under `folder`, fetched if it is not there whole. Raises FetchError.

    A file whose checksum differs (cut short, altered) is fetched again. Others see the file only once it is complete.
    """
    target = folder / archive.file
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if target.is_file() and not _fault(target, archive.checksum):
            return target
        part = target.with_name(f".{target.name}.part")
        faults = []
        for url in archive.urls * 2:  # a second chance for each address
            try:
                _receive(url, part)
                fault = _fault(part, archive.checksum)
            except (OSError, http.client.HTTPException, ValueError) as error:
                fault = str(error) or type(error).__name__
            if not fault:
                return part.replace(target)
            faults.append(f"{url}: {fault}")
        part.unlink(missing_ok=True)
    raise FetchError(f"cannot fetch {target} ({'; '.join(dict.fromkeys(faults))})")


def _fault(path: Path, expected: str) -> str:
    """What is wrong with the file, or nothing."""
    algorithm, digest = expected.split(":")
    found = checksum(path, algorithm)
    return "" if found == digest else f"{algorithm} is {found} instead of {digest}"


def _receive(url: str, part: Path) -> None:
    """Read `url` into `part`, with a bar when a person looks on. Raises OSError, for a body cut short as well."""
    request = urllib.request.Request(url, headers={"User-Agent": "fedcore"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response, part.open("wb") as file, _bar() as bar:
        length = response.headers.get("Content-Length")
        total = int(length) if length else None
        row = bar.add_task(url.rsplit("/", 1)[-1], total=total)
        while block := response.read(_BLOCK):
            file.write(block)
            bar.update(row, advance=len(block))
        if total is not None and file.tell() != total:
            raise OSError(f"cut short after {file.tell()} of {total} bytes")


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())

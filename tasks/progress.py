"""A progress bar on long work; nothing where no person watches."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

T = TypeVar("T")


def watched(items: Iterable[T], title: str, *, done: int, total: int) -> Iterator[T]:
    """The items as they come, with a bar on the terminal that began `done` of `total` items ago."""
    with Progress(disable=not sys.stderr.isatty(), console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(title, completed=done, total=total)
        for item in items:
            bar.advance(job)
            yield item

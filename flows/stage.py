"""One stage from the command line, as dvc.yaml calls it."""

import logging
import sys
from collections.abc import Callable
from typing import Any

from prefect import Flow, Task

from fedcore.config import ConfigError
from flows import server
from tasks import study

log = logging.getLogger("fedcore")


def main(flow: Flow[..., Any], work: Task[..., Any]) -> None:
    """Run `flow`, which plays the task `work`, with the command's arguments.

    Where no Prefect server answers and none can be started, the work is done without its records, and that is said.
    What is wrong with the study is said in a line, before a server is looked for.
    """
    names = sys.argv[1:]
    if len(names) != work.fn.__code__.co_argcount:
        sys.exit(f"usage: python -m flows.{flow.name} {'NAME' * work.fn.__code__.co_argcount}")
    said(study.load)
    try:
        with server.at_hand():
            said(flow, *names)
    except server.UnavailableError as error:
        log.warning("%s; going on without Prefect's records", error)
        said(work.fn, *names)


def said(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function; what the user can mend is one line on the terminal and status 2."""
    try:
        function(*arguments)
    except (ConfigError, FileNotFoundError, server.UnavailableError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)

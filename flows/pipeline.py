"""The whole study, stale stage by stale stage, independent ones at once: python -m flows.pipeline [STAGE ...].

The same graph and the same cache as `dvc repro`; one Prefect server for all.
"""

import argparse
import sys
from collections.abc import Sequence

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import FailedRun
from prefect.futures import PrefectFuture, as_completed
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed

from fedcore.config import ConfigError
from flows import server
from flows.stage import said
from tasks import layout, study, versioning

JOBS = 2  # stages at once: while one computes, another starts


@flow(name="pipeline", flow_run_name="pipeline")
def pipeline(stages: Sequence[str] = (), jobs: int = JOBS, force: bool = False) -> State[None]:
    """Reproduce the `stages` of dvc.yaml (default all) and what they depend on, `jobs` at a time.

    A stage that fails lets those that do not need it go on; the flow fails in the end.
    """
    whole = study.load()
    if jobs < 1:
        raise ConfigError(f"jobs: {jobs} stages at once; run at least one")
    waiting = versioning.graph(stages)
    get_run_logger().info("study %s: %d stages, %d at a time", whole.study, len(waiting), jobs)
    with versioning.stopping_with_us():
        done, failed = _play(waiting, jobs, force)
    if failed:
        return Failed(message=f"failed: {', '.join(failed)}; not begun: {', '.join(waiting) or 'none'}")
    return Completed(message=f"{len(done)} stages are up to date")


def _play(waiting: dict[str, list[str]], jobs: int, force: bool) -> tuple[set[str], list[str]]:
    """Take the stages out of `waiting` (stage -> those before it) as they begin; those done, and those that failed."""
    active: dict[PrefectFuture[None], str] = {}
    done: set[str] = set()
    failed: list[str] = []
    while True:
        for name in [name for name, before in waiting.items() if done.issuperset(before)][: jobs - len(active)]:
            del waiting[name]
            active[versioning.reproduce.submit(name, force, return_state=False)] = name
        if not active:
            return done, failed
        ended = next(as_completed(list(active)))
        ended.wait()  # from here on its state is final
        name = active.pop(ended)
        if ended.state.is_completed():
            done.add(name)
        else:
            failed.append(name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description=__doc__)
    parser.add_argument("stages", nargs="*", help="names in dvc.yaml, such as federate@fedavg; default all")
    parser.add_argument("--jobs", type=int, default=JOBS, help="stages at once (default %(default)s)")
    parser.add_argument("--force", action="store_true", help="run stages that are up to date too")
    args = parser.parse_args()
    said(_played, args.stages, args.jobs, args.force)
    print(f"Report: {layout.report().absolute() / 'index.html'}")


def _played(stages: Sequence[str], jobs: int, force: bool) -> None:
    study.load()
    with server.at_hand() as url:
        print(f"Prefect: {url.removesuffix('/api')}")
        try:
            pipeline(stages, jobs, force)
        except FailedRun as error:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

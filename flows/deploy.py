"""Register what can be scheduled and started from the Prefect UI: python -m flows.deploy [--cron CRON] [--gpus N].

One deployment of the pipeline and one of each stage, all in a work pool of processes; `prefect worker start --pool
fedcore` carries them out. Needs a Prefect server that stays: PREFECT_API_URL, or `make ui`.
"""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists

from flows import server
from flows.download import download
from flows.federate import federate
from flows.partition import partition
from flows.pipeline import pipeline
from flows.pretrain import pretrain
from flows.report import report
from flows.stage import said
from tasks import study

POOL = "fedcore"
FLOWS: tuple[Flow[..., Any], ...] = (pipeline, download, partition, pretrain, federate, report)


def deploy(cron: str | None = None, gpus: int = 1) -> None:
    """Register the deployments of this workspace; the pipeline's runs by `cron` if given.

    `gpus` is how many stages that compute for long run at once, whoever started them.
    """
    with get_client(sync_client=True) as client:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        client.create_concurrency_limit(tag=study.GPU, concurrency_limit=gpus)
    root = Path.cwd()
    place = {
        "working_dir": str(root),
        "env": {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])},
    }
    for flow in FLOWS:
        source = flow.from_source(str(root), f"flows/{flow.name}.py:{flow.name}")
        assert isinstance(source, Flow)
        source.deploy(
            name=POOL,
            work_pool_name=POOL,
            job_variables=place,
            cron=cron if flow is pipeline else None,
            print_next_steps=False,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.deploy", description=__doc__)
    parser.add_argument("--cron", help="when to run the pipeline, as five fields; default only when asked")
    parser.add_argument("--gpus", type=int, default=1, help="stages that train at once (default %(default)s)")
    args = parser.parse_args()
    said(_deployed, args.cron, args.gpus)


def _deployed(cron: str | None, gpus: int) -> None:
    study.load()
    with server.at_hand() as url:
        deploy(cron, gpus)
    print(f"Deployments: {url.removesuffix('/api')}/deployments")


if __name__ == "__main__":
    main()

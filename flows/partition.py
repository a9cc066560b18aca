"""The partition stage of one partition node: `python -m flows.partition NAME`."""

import sys

from prefect import flow

from tasks import partitions


@flow(name="partition", flow_run_name="partition {name}")
def partition(name: str) -> None:
    partitions.partition(name)


if __name__ == "__main__":
    partition(sys.argv[1])

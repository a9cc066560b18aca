"""Divide a dataset over clients: python -m flows.partition NAME."""

from prefect import flow

from flows import stage
from tasks import partitions


@flow(name="partition", flow_run_name="partition-{name}")
def partition(name: str) -> None:
    """Make the partition node `name` of params.yaml."""
    partitions.partition(name)


if __name__ == "__main__":
    stage.main(partition, partitions.partition)

"""Bring a dataset into the workspace: python -m flows.download NAME."""

import sys

from prefect import flow

from tasks import datasets


@flow(flow_run_name="download-{name}")
def download(name: str) -> None:
    """Fetch, read and store the dataset node `name` of params.yaml."""
    datasets.download(name)


if __name__ == "__main__":
    download(sys.argv[1])

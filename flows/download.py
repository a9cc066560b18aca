"""Bring a dataset into the workspace: python -m flows.download NAME."""

from prefect import flow

from flows import stage
from tasks import datasets


@flow(name="download", flow_run_name="download-{name}")
def download(name: str) -> None:
    """Fetch, read and store the dataset node `name` of params.yaml."""
    datasets.download(name)


if __name__ == "__main__":
    stage.main(download, datasets.download)

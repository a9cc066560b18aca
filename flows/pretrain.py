"""Make an encoder: python -m flows.pretrain NAME."""

from prefect import flow

from flows import stage
from tasks import encoders


@flow(name="pretrain", flow_run_name="pretrain-{name}")
def pretrain(name: str) -> None:
    """Pre-train the encoder node `name` of params.yaml, or note that runs draw its weights."""
    encoders.pretrain(name)


if __name__ == "__main__":
    stage.main(pretrain, encoders.pretrain)

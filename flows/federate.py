"""Play a run: python -m flows.federate NAME."""

from prefect import flow

from flows import stage
from tasks import rounds


@flow(name="federate", flow_run_name="federate-{name}")
def federate(name: str) -> None:
    """Play the rounds of the run node `name` of params.yaml, seed by seed."""
    rounds.federate(name)


if __name__ == "__main__":
    stage.main(federate, rounds.federate)

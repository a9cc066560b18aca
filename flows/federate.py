"""Play one run: python -m flows.federate RUN."""

import sys

from prefect import flow

from tasks.rounds import federated


@flow(name="federate", flow_run_name="federate-{name}")
def federate(name: str) -> None:
    federated(name)


if __name__ == "__main__":
    federate(sys.argv[1])

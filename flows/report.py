"""Write the report of the study: python -m flows.report."""

from prefect import flow

from flows import stage
from tasks import reports


@flow(name="report", flow_run_name="report")
def report() -> None:
    """Make report/ from the results in the workspace."""
    reports.report()


if __name__ == "__main__":
    stage.main(report, reports.report)

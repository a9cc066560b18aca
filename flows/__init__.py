"""Prefect flows: the order of work and nothing else.

Prefect keeps its records in the workspace, unless its settings say otherwise: PREFECT_HOME, or a profile of the user.
"""

import logging
import os
from pathlib import Path

from tasks import layout

configured = "PREFECT_HOME" in os.environ or Path("~/.prefect/profiles.toml").expanduser().exists()
if layout.params().is_file() and not configured:
    layout.prefect_home().mkdir(parents=True, exist_ok=True)
    os.environ["PREFECT_HOME"] = str(layout.prefect_home().absolute())
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # stages at once share the cores: waiting threads must not spin
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a tracker that is away must not hold up a run
os.environ.setdefault("PREFECT_LOGGING_EXTRA_LOGGERS", "fedcore")
os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")  # as where there is no server
logging.getLogger("fedcore").setLevel(logging.INFO)

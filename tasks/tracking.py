"""MLflow: one tracked run for each seed of a run and each encoder. Nothing else imports mlflow."""

import logging
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pandas as pd
import torch
from filelock import FileLock
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from torch import Tensor, nn

from fedcore.config import ConfigError
from tasks import layout

log = logging.getLogger("fedcore")
for chatty in ("mlflow", "alembic"):  # the making of a database, in a hundred lines
    logging.getLogger(chatty).setLevel(logging.WARNING)

FLUSH_SECONDS, BATCH = 2.0, 1000  # MLflow takes at most 1000 metrics at once
HOST, PROCESS = "fedcore.host", "fedcore.process"
NOTE = "mlflow_run"


def uri() -> str:
    """Where runs are tracked: MLFLOW_TRACKING_URI, or a database of the workspace."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{layout.tracking().absolute()}/mlflow.db"


class Log:
    """What a tracked run is told. A tracker that is away in between gets the numbers when it is back."""

    def __init__(self, client: MlflowClient, run_id: str, resumed: bool) -> None:
        self.run_id = run_id
        self._client, self._resumed = client, resumed
        self._waiting: list[Metric] = []
        self._told: dict[str, int] = {}  # metric -> last step that the tracker had when the run was resumed
        self._flushed = time.monotonic()

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Numbers of a step by name; what a resumed run had told already is not told twice."""
        now = int(time.time() * 1000)
        new = {name: value for name, value in metrics.items() if step > self._last(name)}
        self._waiting += [Metric(name, float(value), now, step) for name, value in new.items()]
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def log_table(self, table: pd.DataFrame, name: str) -> None:
        """A table as the artifact `name`, whose ending (.csv or .parquet) says how it is written."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path, index=False)
            self._client.log_artifact(self.run_id, str(path))

    def log_model(self, model: nn.Module, example: Tensor, name: str) -> None:
        """Log `model` with the signature of its answer to `example`, and register it as a new version of `name`."""
        import mlflow  # takes seconds, and most of what is tracked has no model

        mlflow.set_tracking_uri(self._client.tracking_uri)
        images = example.numpy()
        with torch.no_grad():
            signature = mlflow.models.infer_signature(images, model(example).numpy())
        with mlflow.start_run(run_id=self.run_id):
            mlflow.pytorch.log_model(
                model,
                name=name,
                signature=signature,
                input_example=images,  # the batch is free where the example has two images or more
                registered_model_name=name,
                pip_requirements=[f"torch=={version('torch')}"],
            )

    def flush(self) -> None:
        """Send what waits; on failure it goes on waiting, with a warning."""
        self._flushed = time.monotonic()
        try:
            while self._waiting:
                self._client.log_batch(self.run_id, metrics=self._waiting[:BATCH])
                del self._waiting[:BATCH]
        except (MlflowException, OSError) as error:
            log.warning("%s does not answer, %d numbers wait: %s", uri(), len(self._waiting), error)

    def _last(self, name: str) -> int:
        if self._resumed and name not in self._told:
            history = self._client.get_metric_history(self.run_id, name)
            self._told[name] = max((metric.step for metric in history), default=-1)
        return self._told.get(name, -1)


@contextmanager
def run(
    experiment: str,
    name: str,
    *,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    unfinished: Path,
    parent: Log | None = None,
) -> Iterator[Log]:
    """Track the block as the run `name` of `experiment`.

    `unfinished` is a folder that outlives a killed process; a run noted there is gone on with. The block's exception
    marks the run FAILED, an interruption KILLED. Raises ConfigError, before the block, if the tracker does not answer.
    """
    client, experiment_id = _open(experiment)
    _give_up_dead(client, experiment_id)
    unfinished.mkdir(parents=True, exist_ok=True)
    run_id = _begun(client, unfinished / NOTE)
    resumed = run_id is not None
    if run_id is None:
        run_id = client.create_run(experiment_id, run_name=name).info.run_id
        (unfinished / NOTE).write_text(run_id)
    own = {**tags, HOST: platform.node(), PROCESS: str(os.getpid())}
    if parent is not None:
        own[MLFLOW_PARENT_RUN_ID] = parent.run_id
    client.update_run(run_id, status="RUNNING")
    client.log_batch(run_id, params=_flat(params), tags=[RunTag(key, value) for key, value in own.items()])
    log = Log(client, run_id, resumed)
    try:
        yield log
    except BaseException as error:
        log.flush()
        _end(client, run_id, "FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    log.flush()
    _end(client, run_id, "FINISHED")


def ready() -> str:
    """The tracker's address, the workspace's own database made if it is not there, by one process at a time.

    Raises OSError or MlflowException if the tracker does not answer.
    """
    home = layout.tracking().absolute()
    home.mkdir(parents=True, exist_ok=True)
    if uri().startswith("http"):
        with suppress(HTTPError):  # an answer too
            urlopen(uri(), timeout=10).close()
    with FileLock(home / ".lock"):
        MlflowClient(uri()).get_experiment("0")
    return uri()


def _open(experiment: str) -> tuple[MlflowClient, str]:
    """A client and the experiment's id."""
    try:
        client = MlflowClient(ready())
        with FileLock(layout.tracking() / ".lock"):
            found = client.get_experiment_by_name(experiment)
            if found is not None and found.lifecycle_stage != "active":
                raise ConfigError(
                    f"study: MLflow's experiment {experiment!r} is deleted; restore it with mlflow experiments restore "
                    f"--experiment-id {found.experiment_id}, or give the study another name"
                )
            if found is not None:
                return client, str(found.experiment_id)
            local = uri().startswith("sqlite:")
            place = (layout.tracking().absolute() / "artifacts").as_uri() if local else None
            return client, client.create_experiment(experiment, artifact_location=place)
    except (MlflowException, OSError) as error:
        raise ConfigError(
            f"MLFLOW_TRACKING_URI: {uri()} does not answer ({error}); start it, or unset the variable to track in "
            f"{layout.tracking()}"
        ) from error


def _begun(client: MlflowClient, note: Path) -> str | None:
    """The id of the run that a killed process had begun, if this tracker knows it and nobody deleted it."""
    if not note.is_file():
        return None
    try:
        info = client.get_run(note.read_text()).info
    except MlflowException:
        return None
    return str(info.run_id) if info.lifecycle_stage == "active" else None


def _give_up_dead(client: MlflowClient, experiment_id: str) -> None:
    """Mark FAILED the runs of this machine whose process was killed; the same command may still go on with one."""
    running = f"attributes.status = 'RUNNING' and tags.`{HOST}` = '{platform.node()}'"
    for left in client.search_runs([experiment_id], running):
        if not _alive(int(left.data.tags[PROCESS])):
            _end(client, left.info.run_id, "FAILED")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _end(client: MlflowClient, run_id: str, status: str) -> None:
    try:
        client.set_terminated(run_id, status)
    except (MlflowException, OSError) as error:
        log.warning("%s does not answer, run %s is not marked %s: %s", uri(), run_id, status, error)


def _flat(params: Mapping[str, Any], prefix: str = "") -> list[Param]:
    """Nested settings as dotted names."""
    flat = []
    for key, value in params.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{key}.")
        else:
            flat.append(Param(f"{prefix}{key}", str(value)))
    return flat

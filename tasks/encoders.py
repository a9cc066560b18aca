"""The pretrain stage: an encoder trained on images without labels, how good it is, and where a killed one stopped."""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from prefect import task
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedcore import checkpoint, nets
from fedcore.config import ConfigError
from fedcore.contrastive import Contrastive, EncoderSpec, Random
from fedcore.contrastive.train import State, probe, source, train
from fedcore.data.shards import Dataset
from fedcore.tree import Params
from tasks import layout, progress, publish, study, tracking, versioning

log = logging.getLogger("fedcore")

SAMPLE = 300  # images kept to tell how relevant the pre-training set is to a client's (methods.md 1.4)
STATE = "state.safetensors"


@task(task_run_name="pretrain-{name}", tags={study.GPU})
def pretrain(name: str) -> Path:
    """Make the encoder node `name`: write models/encoders/<name>, returned.

    Raises ConfigError that names the setting if the node is not there or asks for what its dataset does not have,
    FileNotFoundError if the dataset has not been downloaded. The same command goes on from the last checkpoint of one
    that was killed.
    """
    whole = study.load()
    if name not in whole.encoders:
        raise ConfigError(f"encoders.{name}: not defined in {layout.params()}; known: {', '.join(whole.encoders)}")
    spec = whole.encoders[name]
    raw = layout.dataset(spec.dataset)
    if not (raw / "dataset.json").is_file():
        raise FileNotFoundError(f"{raw}: not there; run python -m flows.download {spec.dataset} first")
    dataset = Dataset.open(raw)
    try:
        facts = _facts(name, spec, dataset)
        if isinstance(spec, Contrastive):
            source(spec, dataset)
    except ValueError as error:
        raise ConfigError(f"encoders.{name}.{error}") from error
    if isinstance(spec, Contrastive):
        _trained(name, spec, dataset, facts, whole)
    else:
        with publish.replacing(layout.encoder(name)) as folder:
            publish.record(facts, folder / "encoder.json")
    return layout.encoder(name)


def read(name: str, seed: int) -> tuple[dict[str, Any], Params | None]:
    """What encoder.json says of an encoder, and its weights for a run with this seed; None where every run draws them.

    Only encoders that come from a run differ by seed. Raises FileNotFoundError if the encoder has not been made.
    """
    folder = layout.encoder(name)
    if not (folder / "encoder.json").is_file():
        raise FileNotFoundError(
            f"{folder}: not there; run python -m flows.pretrain {name} (or flows.federate, if it is a run) first"
        )
    facts = json.loads((folder / "encoder.json").read_text())
    if facts["algorithm"] == Random.algorithm:
        return facts, None
    weights = folder / (f"seed{seed}.safetensors" if facts["algorithm"] == "run" else "encoder.safetensors")
    if not weights.is_file():
        raise FileNotFoundError(f"{weights}: not there; run python -m flows.federate {name} with seed {seed} first")
    return facts, Params(load_file(weights))


def sample(name: str) -> Tensor | None:
    """Some images (n, C, H, W) uint8 that an encoder learned from; None for one that learned from none of its own."""
    path = layout.encoder(name) / "sample.npy"
    return torch.from_numpy(np.load(path)) if path.is_file() else None


def _facts(name: str, spec: EncoderSpec, dataset: Dataset) -> dict[str, Any]:
    net = nets.encoder(spec.net, dataset.shape, **spec.net_options)
    facts = {
        "name": name,
        "algorithm": spec.algorithm,
        "dataset": spec.dataset,
        "net": spec.net,
        "net_options": dict(spec.net_options),
        "features": net.features,
        "shape": list(dataset.shape),
        "spec": asdict(spec),
        "quality": None,
    }
    causes = {key: facts[key] for key in ("algorithm", "net", "net_options")}
    if isinstance(spec, Contrastive):
        causes |= {"spec": facts["spec"], "dataset": dataset.fingerprint}
    return facts | {"fingerprint": publish.fingerprint(causes)}


def _trained(name: str, spec: Contrastive, dataset: Dataset, facts: dict[str, Any], whole: study.Study) -> None:
    unfinished = publish.unfinished("encoders", name, facts["fingerprint"])
    torch.set_num_threads(whole.hardware.cores)
    tags = {"kind": "encoder", "method": spec.algorithm, "encoder": facts["fingerprint"]}
    tags |= versioning.tags({"dataset": layout.dataset(spec.dataset)})
    node = whole.raw["encoders"][name]
    with tracking.run(whole.study, f"encoder {name}", params=node, tags=tags, unfinished=unfinished) as tracked:
        for row in _epochs(name, spec, dataset, whole.hardware, unfinished / STATE):
            tracked.log_metrics({key: value for key, value in row.items() if key != "epoch"}, step=row["epoch"])
        state, rows = checkpoint.load(unfinished / STATE)
        curve = pd.DataFrame(rows, columns=["epoch", "loss", "knn_accuracy", "linear_accuracy"])
        quality = {key: rows[-1][key] for key in ("knn_accuracy", "linear_accuracy")}
        with publish.replacing(layout.encoder(name)) as folder:
            save_file(_weights(state), folder / "encoder.safetensors")
            np.save(folder / "sample.npy", _drawn(source(spec, dataset).images))
            curve.to_csv(folder / "curve.csv", index=False)
            publish.record(facts | {"quality": quality}, folder / "encoder.json")
        tracked.log_table(curve, "curve.csv")
    shutil.rmtree(unfinished)
    told = ", ".join(f"{key} {value:.3f}" for key, value in quality.items())
    log.info("%s: %d epochs of %s, %s", name, spec.epochs, spec.algorithm, told)


def _epochs(
    name: str, spec: Contrastive, dataset: Dataset, hardware: study.Hardware, path: Path
) -> Iterator[dict[str, Any]]:
    """Train, from the state at `path` if there is one, and keep the state there; yields what to tell of each epoch."""
    state, rows = _resumed(path)
    yield from rows
    epochs = train(spec, dataset, device=hardware.torch_device(), resume=state)
    saved = time.monotonic()
    for end in progress.watched(epochs, f"pretrain {name}", done=len(rows), total=spec.epochs):
        last = end.epoch + 1 == spec.epochs
        row = {"epoch": end.epoch + 1, "loss": end.loss}
        if last or (end.epoch + 1) % spec.probe_every == 0:
            row |= probe(end.learner.encoder, dataset)
        rows.append(row)
        if last or time.monotonic() - saved > hardware.checkpoint_seconds:
            checkpoint.save((end.state(), rows), path)
            saved = time.monotonic()
            log.info("%s: %d of %d epochs, loss %.3f", name, len(rows), spec.epochs, end.loss)
        yield row


def _resumed(path: Path) -> tuple[State | None, list[dict[str, Any]]]:
    """The state and the rows at `path`; none where there is no whole checkpoint."""
    if not path.exists():
        return None, []
    try:
        state, rows = checkpoint.load(path)
    except ValueError as error:
        log.warning("%s; training starts afresh", error)
        return None, []
    return state, rows


def _weights(state: State) -> dict[str, Tensor]:
    """The encoder alone: θ_f. What was trained around it is thrown away."""
    found = {name.removeprefix("encoder."): w for name, w in state.learner.items() if name.startswith("encoder.")}
    return {name: weight.cpu().contiguous() for name, weight in found.items() if weight.is_floating_point()}


def _drawn(images: Tensor) -> npt.NDArray[np.uint8]:
    rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    drawn: npt.NDArray[np.uint8] = images[rows].numpy()
    return drawn

"""What a federated run leaves behind: models, an encoder for other runs, and the numbers people look at."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor

from fedcore import checkpoint, metrics, nets
from fedcore.data.shards import Dataset, Shard, Split
from fedcore.engine import Report
from fedcore.method import Method
from fedcore.model import Task, classifier
from fedcore.tree import Params, nbytes
from tasks import encoders, features, layout, publish, surface
from tasks.study import Run, Study


@dataclass(frozen=True)
class Scene:
    """All that a run needs, read and checked."""

    name: str
    study: Study
    run: Run
    method: Method[Any, Any]  # not yet bound to a task
    dataset: Dataset
    partition: dict[str, Any]  # partition.json
    encoder: dict[str, Any]  # encoder.json
    shards: list[Shard]

    def task(self, seed: int) -> Task:
        """What is learned with this seed: a network whose encoder starts as the node's, if that has weights."""
        _, weights = encoders.read(self.run.encoder, seed)
        dataset, net, options = self.dataset, self.encoder["net"], self.encoder["net_options"]
        build = partial(classifier, net, options, dataset.shape, self.run.head, len(dataset.classes))
        pretrained = None if weights is None else Params({f"encoder.{key}": value for key, value in weights.items()})
        return Task(build, dataset.mean, dataset.std, pretrained)

    def global_test(self) -> Split:
        """The whole test split of the dataset."""
        source = self.dataset.splits["test"]
        return Split(source, torch.arange(len(source.labels)))


@dataclass(frozen=True)
class Play:
    """One seed's rounds."""

    seed: int
    task: Task
    end: Report
    curve: pd.DataFrame  # a row a round
    clients: pd.DataFrame  # a row a round and client


def frames(seed: int, history: Sequence[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    curve = pd.DataFrame([{"seed": seed, "round": row["round"], **row["metrics"]} for row in history])
    rounds = []
    for row in history:
        table = pd.DataFrame({name: pd.Series(values) for name, values in row["per_client"].items()})
        table.index = table.index.astype(int)
        rounds.append(table.rename_axis("client").reset_index().assign(seed=seed, round=row["round"]))
    clients = pd.concat(rounds, ignore_index=True)
    first = ["seed", "round", "client"]
    return curve, clients[[*first, *sorted(str(name) for name in clients if name not in first)]]


def final(plays: Sequence[Play]) -> dict[str, float]:
    """The last round's numbers: mean over seeds, and with several seeds their standard deviation under `<name>_std`.

    The sample standard deviation (n - 1). `seconds` are those of all rounds together.
    """
    ends = pd.DataFrame([play.curve.iloc[-1] for play in plays]).drop(columns=["seed", "round"])
    ends["seconds"] = [play.curve["seconds"].sum() for play in plays]
    told = {str(name): float(ends[name].mean()) for name in ends}
    if len(ends) > 1:
        told |= {f"{name}_std": float(ends[name].std(ddof=1)) for name in ends}
    return told


def write(scene: Scene, plays: Sequence[Play]) -> None:
    """Models, the encoder that other runs may start from, and results, each folder whole or not at all."""
    with publish.replacing(layout.model(scene.name)) as folder:
        for play in plays:
            checkpoint.save(play.end, folder / f"seed{play.seed}" / "report.safetensors")
            for name, params in scene.method.models(play.end.server).items():
                save_file(dict(params), folder / f"seed{play.seed}" / f"{name}.safetensors")
    with publish.replacing(layout.encoder(scene.name)) as folder:
        _publish_encoder(scene, plays, folder)
    with publish.replacing(layout.result(scene.name)) as folder:
        numbers = {"seeds": len(plays), "rounds": scene.run.rounds, **final(plays)}
        publish.record(numbers, folder / "metrics.json")
        pd.concat([play.curve for play in plays]).to_csv(folder / "curves.csv", index=False)
        pd.concat([play.clients for play in plays]).to_parquet(folder / "clients.parquet", index=False)
        if scene.run.features:
            method = replace(scene.method, task=plays[0].task)
            table = features.embedded(method, plays[0].end, scene.shards, scene.run.features)
            table.to_parquet(folder / "features.parquet", index=False)
        if scene.run.surface:
            method = replace(scene.method, task=plays[0].task)
            table = surface.around(method, plays[0].end, scene.shards, scene.run.surface)
            table.to_parquet(folder / "surface.parquet", index=False)
        publish.record(_record(scene, plays), folder / "run.json")


def _publish_encoder(scene: Scene, plays: Sequence[Play], folder: Path) -> None:
    """Seed by seed the encoder of the global model; a method without one publishes none."""
    facts = {**scene.encoder, "name": scene.name, "algorithm": "run", "dataset": scene.partition["dataset"]}
    facts |= {"shape": list(scene.dataset.shape), "quality": None, "from": scene.encoder["fingerprint"]}
    for play in plays:
        final = scene.method.models(play.end.server).get("global")
        if final is not None:
            weights = {name.removeprefix("encoder."): value for name, value in final.under("encoder.").items()}
            save_file(weights, folder / f"seed{play.seed}.safetensors")
    facts["fingerprint"] = publish.digest(folder)
    publish.record(facts, folder / "encoder.json")


def _record(scene: Scene, plays: Sequence[Play]) -> dict[str, Any]:
    """What made the result, beside the result."""
    curves = pd.concat([play.curve for play in plays])
    exchanged, played = curves.bytes_down + curves.bytes_up, curves.clients
    formula = scene.method.paper_cost(nbytes(plays[0].task.init()))
    return {
        "run": scene.name,
        "method": scene.run.method,
        "study": scene.study.study,
        "partition": scene.run.partition,
        "encoder": scene.run.encoder,
        "seeds": list(scene.run.seeds),
        "rounds": scene.run.rounds,
        "spec": scene.study.raw["runs"][scene.name],
        "settings": _settings(scene),
        "cost": {
            "paper_bytes_per_client_round": formula,
            "measured_bytes_per_client_round": float(exchanged.sum() / played.sum()),
        },
        "relevance": _relevance(scene, plays[0]),
        "seconds_total": float(curves["seconds"].sum()),
        "hardware": asdict(scene.study.hardware),
        "versions": {"fedcore": version("fedcore"), "torch": torch.__version__},
    }


def _settings(scene: Scene) -> dict[str, Any]:
    """Every setting of the run, its method and its partition, defaults too: dotted name -> value."""
    run = {f.name: getattr(scene.run, f.name) for f in fields(scene.run) if f.name != "settings"}
    method = {f.name: getattr(scene.method, f.name) for f in fields(scene.method) if f.name != "task"}
    return _flat({**run, **method}) | _flat(scene.partition["spec"], "partition.")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if is_dataclass(value) and not isinstance(value, type):
            flat |= _flat({f.name: getattr(value, f.name) for f in fields(value)}, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = list(value) if isinstance(value, tuple) else value
    return flat


def _relevance(scene: Scene, play: Play) -> dict[str, float] | None:
    """CP-CFL's relevance of the pre-training set: mean cosine of 300 x 300 images, as pixels and as features.

    None where the encoder was not trained on images of this shape. Features are of images normalised by the clients'
    dataset, as they are in a run; the encoder saw its own dataset's mean and deviation.
    """
    theirs = encoders.sample(scene.run.encoder)
    if theirs is None or tuple(theirs.shape[1:]) != scene.dataset.shape:
        return None
    rows = torch.cat([shard.train.index for shard in scene.shards])
    drawn = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[: len(theirs)]]
    ours = scene.dataset.splits["train"].images[drawn]
    relevance = {"pixels": metrics.relevance(theirs.float(), ours.float())}
    if play.task.pretrained is not None:
        relevance["features"] = metrics.relevance(*(_features(scene, play.task, images) for images in (theirs, ours)))
    return relevance


@torch.no_grad()
def _features(scene: Scene, task: Task, images: Tensor) -> Tensor:
    net = nets.encoder(scene.encoder["net"], scene.dataset.shape, **scene.encoder["net_options"]).eval()
    weights = {name.removeprefix("encoder."): value for name, value in (task.pretrained or {}).items()}
    net.load_state_dict({**net.state_dict(), **weights})
    features: Tensor = net((images / 255 - task.mean.view(1, -1, 1, 1)) / task.std.view(1, -1, 1, 1))
    return features

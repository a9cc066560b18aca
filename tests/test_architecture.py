"""What the parts of the project may know of each other, beyond the layers that import-linter checks."""

import ast
from pathlib import Path

import pytest
import yaml

from fedcore import registry
from tasks import study, versioning

ROOT = Path(__file__).parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, those inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def file(module: str) -> Path | None:
    path = ROOT / Path(*module.split("."))
    return next((found for found in (path.with_suffix(".py"), path / "__init__.py") if found.is_file()), None)


def reached(start: Path) -> set[Path]:
    """The files of fedcore that `start` needs, itself among them."""
    found, waiting = set(), [start]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [f for name in imports(path) if name.startswith("fedcore.") and (f := file(name))]
    return found


def depends(stage: str, path: Path) -> bool:
    deps = [ROOT / dep for dep in STAGES[stage]["do"]["deps"] if "$" not in dep]
    return any(path == dep or dep in path.parents for dep in deps)


# What says how and where work is done, or reads settings: it cannot change a result.
WITHOUT_EFFECT = {"checkpoint", "config", "executors", "registry", "fetch", "mirror", "__init__"}


@pytest.mark.parametrize("name", registry.method_names())
def test_a_run_is_stale_when_anything_that_decides_it_changes(name: str) -> None:
    own = ROOT / f"fedcore/methods/{name}.py"
    needed = reached(own) | reached(ROOT / "fedcore/engine.py")
    assert not {
        path for path in needed if not (path == own or path.stem in WITHOUT_EFFECT or depends("federate", path))
    }


def test_an_encoder_is_stale_when_anything_that_decides_it_changes() -> None:
    needed = reached(ROOT / "fedcore/contrastive/train.py")
    missing = {path for path in needed if not (path.stem in WITHOUT_EFFECT or depends("pretrain", path))}
    # of the last two only a seed's hash and the arrays' reading are used
    assert {path.name for path in missing} <= {"cohort.py", "shards.py", "tree.py"}


@pytest.mark.parametrize(("library", "only"), [("mlflow", "tracking.py"), ("dvc", "versioning.py")])
def test_one_file_knows_mlflow_and_one_knows_dvc(library: str, only: str) -> None:
    files = [path for folder in ("fedcore", "tasks", "flows") for path in (ROOT / folder).rglob("*.py")]
    assert {path.name for path in files if any(n.split(".")[0] == library for n in imports(path))} == {only}


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "conf/study").glob("*.yaml")))
def test_every_study_is_sound_and_the_tour_is_what_is_cloned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    versioning.compose(name, [], tmp_path / "params.yaml")
    whole = study.load(tmp_path / "params.yaml")
    assert whole.study == name
    if name == "tour":
        assert whole.raw == study.load().raw

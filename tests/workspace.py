"""A workspace for tests: the project's own files with a miniature study, for the real DVC, Prefect and MLflow."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
STUDY = """
study: mini
seed: 0
datasets:
  tiny: {source: digits}
partitions:
  groups: {dataset: tiny, scheme: groups, clients: 4, groups: [[0, 1], [1, 2]], counts: [12, 6]}
encoders:
  random: {algorithm: random, dataset: tiny}
  simclr: {algorithm: simclr, dataset: tiny, epochs: 3, probe_every: 2, batch_size: 128}
runs:
  fedavg: {method: fedavg, partition: groups, encoder: random, rounds: 3, seeds: [0, 1], fit: {lr: 0.1}}
  ifca_fedavg: {method: ifca, partition: groups, encoder: fedavg, rounds: 2, num_clusters: 2}
  cp_cfl: {method: cp_cfl, partition: groups, encoder: simclr, rounds: 3, num_clusters: 2, warmup_rounds: 1}
hardware: {workers: 1}
"""


@dataclass(frozen=True)
class Workspace:
    root: Path

    def run(self, *command: str, status: int = 0, timeout: float = 900, **variables: str) -> str:
        """Run a command of the project here; its output. Fails the test for another exit status."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment() | variables, text=True, timeout=timeout, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == status, done.stdout[-6000:]
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=self.root, env=self.environment(), text=True, start_new_session=True,
            stdout=(self.root / "started.log").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        mine = {"PATH": path, "HOME": str(self.root / "home"), "DVC_NO_ANALYTICS": "1"}
        strange = ("PREFECT", "MLFLOW", "FEDCORE", "DVC")
        return {key: value for key, value in os.environ.items() if not key.startswith(strange)} | mine

    def edit(self, old: str, new: str) -> None:
        """Change params.yaml."""
        path = self.root / "params.yaml"
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))

    def result(self, run: str) -> dict[str, bytes]:
        """All that a run or an encoder left behind that the clock has no part in: its tensors."""
        folders = (self.root / "models/federated" / run, self.root / "models/encoders" / run)
        found = [path for folder in folders for path in sorted(folder.rglob("*.safetensors"))]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found if path.stem != "report"}


def make(root: Path) -> Workspace:
    for folder in ("fedcore", "tasks", "flows", "conf"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".dvc").mkdir()
    for file in (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore", "dvc.yaml"):
        shutil.copy(ROOT / file, root / file)
    (root / "params.yaml").write_text(STUDY)
    (root / "home").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return Workspace(root)

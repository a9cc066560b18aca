"""Make a study the workspace's own: python -m flows.compose STUDY [KEY=VALUE ...].

Writes params.yaml from conf/. Settings after the name override the study's: runs.fedavg.rounds=5 hardware.workers=4.
"""

import sys
import tempfile
from pathlib import Path

from flows.stage import said
from tasks import layout, study, versioning


def compose(name: str, *overrides: str) -> None:
    """Compose and check a study, then put it in the place of params.yaml; what is not sound changes nothing."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        draft = Path(folder, "params.yaml")
        versioning.compose(name, overrides, draft)
        whole = study.load(draft)
        draft.replace(layout.params())
    nodes = {"dataset": whole.datasets, "partition": whole.partitions, "encoder": whole.encoders, "run": whole.runs}
    counts = ", ".join(f"{len(found)} {kind}{'s' * (len(found) != 1)}" for kind, found in nodes.items())
    print(f"{layout.params()} is now the study {whole.study}: {counts}. Run it with python -m flows.pipeline.")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m flows.compose STUDY [KEY=VALUE ...]")
    said(compose, *sys.argv[1:])

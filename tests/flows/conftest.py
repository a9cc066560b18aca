"""Workspaces of their own for tests."""

import shutil
from pathlib import Path

import pytest
from workspace import Workspace, make


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A fresh workspace where nothing has been run."""
    return make(tmp_path)


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace whose study the pipeline has played. Tests that change it copy it first."""
    workspace = make(tmp_path_factory.mktemp("played"))
    (workspace.root / "pipeline.log").write_text(workspace.run("python", "-m", "flows.pipeline"))
    return workspace


@pytest.fixture
def copied(played: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the played workspace that a test may change."""
    shutil.copytree(played.root, tmp_path / "copy", symlinks=True)
    return Workspace(tmp_path / "copy")

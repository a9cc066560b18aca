"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The offline mirror of real images; the test is skipped where there is none."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FEDCORE_MIRROR", beside))
    if not (folder / "manifest.json").is_file():
        pytest.skip("no image mirror: set FEDCORE_MIRROR to its folder")
    return folder

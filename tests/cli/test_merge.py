"""`qprof merge`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .running import qprof

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
GLOW = ROOT / "tests" / "data" / "profile-glow.yaml"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all.yaml, and one profile of every third file of the samples: 0, 1, 2.yaml."""
    folder = tmp_path_factory.mktemp("shards")
    files = sorted((DIGITS / "calibration").glob("*.npz"))
    for shard in range(3):
        (folder / str(shard)).mkdir()
        for file in files[shard::3]:
            shutil.copy(file, folder / str(shard))
    for name, data in [("all", DIGITS / "calibration"), *((str(i), folder / str(i)) for i in range(3))]:
        result = qprof("dump-profile", DIGITS / "model.onnx", "--data", data, "-o", folder / f"{name}.yaml")
        assert result.exit_code == 0, result.output
    return folder


def test_merged_shards_are_byte_for_byte_the_profile_of_all_the_data(shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "merged.yaml"
    result = qprof("merge", *(shards / f"{i}.yaml" for i in "210"), "-o", out)
    assert result.stdout == f"{out}: 17 tensors, 64 samples, from 3 profiles\n"
    assert (result.exit_code, result.stderr) == (0, "")
    assert out.read_bytes() == (shards / "all.yaml").read_bytes()


def test_data_that_is_counted_twice_on_request_is_warned_of(shards: Path, tmp_path: Path) -> None:
    twice = [shards / "0.yaml"] * 2
    result = qprof("merge", *twice, "-o", tmp_path / "m.yaml", "--allow-duplicates")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: ")
    assert "48 samples" in result.stdout

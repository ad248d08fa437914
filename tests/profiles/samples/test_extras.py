"""A library that is not installed: the message names the extra that brings it."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.profiles.base.extras import install_command

from .opening import refusal, saved_recording, spec, written

IDS = spec("input_ids", np.int64, ("batch", "tokens"))

EXTRAS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def says(text: str, package: str, extra: str) -> bool:
    assert extra in EXTRAS
    return f"'{package}', which is not here; install it with: {install_command(extra)}" in text


def test_the_command_names_the_packages_of_the_extra_that_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name == "rapidfuzz":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    (wanted,) = [line for line in EXTRAS["metrics"] if line.startswith("rapidfuzz")]
    assert install_command("metrics") == f"pip install '{wanted}'"


def test_a_tokenizer_needs_the_extra_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers", reason="of the extra text")
    from ...quantizer.plugins.data.test_text import lines, saved_tokenizer

    source, recipe = lines(tmp_path, "one\n"), saved_tokenizer(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert says(refusal(source, [IDS], recipe), "tokenizers", "text")


def test_parquet_needs_the_extra_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert says(refusal(tmp_path, [IDS]), "pyarrow", "tables")


def test_resampling_needs_the_extra_audio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = written(tmp_path, "reader: audio; rate: 16000; resample: soxr")
    monkeypatch.setitem(sys.modules, "soxr", None)
    text = refusal(saved_recording(tmp_path, np.arange(8)), [spec("x", np.float32, ("n",))], recipe)
    assert says(text, "soxr", "audio")


@pytest.mark.parametrize("module", ["fsspec.core", "tenacity"])
def test_a_url_needs_the_extra_remote(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    pytest.importorskip("tenacity", reason="of the extra remote")
    monkeypatch.setitem(sys.modules, module, None)
    assert says(refusal("memory://x", [IDS]), module.partition(".")[0], "remote")

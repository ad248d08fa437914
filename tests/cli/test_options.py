"""Outputs are refused before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from qprof_onnx.cli.options.shared import check_outputs
from qprof_onnx.profiles.base.errors import ConfigError


def test_an_output_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder '.*absent'; make it"):
        check_outputs([tmp_path / "absent" / "p.yaml"], [])


def test_an_output_over_an_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is another file of this command already"):
        check_outputs([tmp_path / "p.yaml"], [tmp_path / "p.yaml"])


def test_an_output_that_was_not_asked_for_is_no_matter(tmp_path: Path) -> None:
    check_outputs([None, tmp_path / "p.yaml"], [tmp_path / "m.onnx"])

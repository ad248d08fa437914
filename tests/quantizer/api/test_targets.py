"""What a target does with each operator."""

from __future__ import annotations

import pytest
import qprof_onnx as qprof


def test_a_target_is_named_or_given_as_a_recipe() -> None:
    assert qprof.operator_reference("glow") == qprof.operator_reference(qprof.load_recipe("glow"))
    assert qprof.operator_reference("glow") != qprof.operator_reference()


def test_an_unknown_target_is_refused_with_the_nearest() -> None:
    with pytest.raises(qprof.ConfigError, match="glow"):
        qprof.operator_reference("gloww")

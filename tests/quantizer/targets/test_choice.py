"""Times of kernels, and the machines that they were measured on."""

from __future__ import annotations

import pytest
from qprof_onnx.quantizer.targets import cost_table
from qprof_onnx.quantizer.targets import target as targets
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe, packaged_targets
from qprof_onnx.quantizer.targets.machine import KINDS, Processor

ZEN4 = Processor("x86_64", "", ("avx2", "avx512f", "avx512_vnni"))
AVX512 = Processor("x86_64", "", ("avx2", "avx512f"))
AVX2 = Processor("x86_64", "", ("avx2",))
ZEN5 = Processor("x86_64", "", ("avx2", "avx_vnni", "avx512f", "avx512_vnni"))
AMX = Processor("x86_64", "", (*ZEN5.features, "amx_int8"))
ARM = Processor("aarch64", "", ("asimddp",))


def test_every_kind_of_processor_has_exactly_one_target() -> None:
    assert sorted(kind for one in packaged_targets() for kind in one.processors) == sorted(KINDS)


def test_products_gain_less_from_int8_on_processors_without_vnni() -> None:
    def share_of_float(target: str) -> float:
        table = costs_of(target)
        assert table is not None
        times = [table.microseconds(f"MatMul:{kind}", (512, 512, 64)) for kind in ("integer", "float")]
        integer, floating = times
        assert integer is not None
        assert floating is not None
        return integer / floating

    assert 0.2 < share_of_float("onnxruntime-x86") < 0.45
    assert 0.45 < share_of_float("onnxruntime-x86-avx2") < 0.8


@pytest.mark.parametrize(
    ("target", "here", "processor"),
    [
        ("onnxruntime-x86", ZEN5, "AMD EPYC avx2 avx_vnni avx512f avx512_vnni"),
        ("onnxruntime-x86", AVX2, "AMD EPYC avx2"),
        ("onnxruntime-x86", AMX, f"Intel(R) Xeon(R) Processor {' '.join(AMX.features)}"),
        ("onnxruntime-x86", ZEN4, "AMD EPYC avx2 avx512f avx512_vnni"),
        ("onnxruntime-x86", AVX512, ""),
        ("onnxruntime-x86", ARM, ""),
        ("onnxruntime-arm", ZEN5, ""),
        ("onnxruntime-arm", ARM, ""),
        ("tensorrt", ZEN5, ""),
    ],
)
def test_the_times_of_a_processor_are_those_of_its_instruction_sets(
    monkeypatch: pytest.MonkeyPatch, target: str, here: Processor, processor: str
) -> None:
    monkeypatch.setattr(targets, "costs_of", cost_table.costs_of)
    recipe = load_recipe(target)
    table = recipe.costs_on(here)
    assert ("" if table is None else table.conditions.processor) == processor
    assert recipe.costs is load_recipe(target).costs  # plans have one table on every processor


@pytest.mark.parametrize("here", [ZEN5, ZEN4, AVX2, AMX])
def test_packaged_times_state_an_error_and_the_models_that_it_was_held_against(here: Processor) -> None:
    table = cost_table.costs_on("onnxruntime-x86", here)
    assert table is not None
    assert 0.0 < table.error < 0.2
    assert len(table.held) >= 10

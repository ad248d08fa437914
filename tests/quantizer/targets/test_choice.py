"""Target auto: which target a machine stands for, and why."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.targets import cost_table
from qprof_onnx.quantizer.targets import target as targets
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe, packaged_targets
from qprof_onnx.quantizer.targets.machine import (
    KINDS,
    Installed,
    Processor,
    choose,
    default_doubt,
)

TARGETS = {target.name: target.processors for target in packaged_targets()}
VNNI = Processor("x86_64", "", ("avx2", "avx512f", "avx512_vnni"))
AVX2 = Processor("x86_64", "", ("avx2",))
ZEN5 = Processor("x86_64", "", ("avx2", "avx_vnni", "avx512f", "avx512_vnni"))
ARM = Processor("aarch64", "", ("asimddp",))
RISCV = Processor("riscv64", "", ())
PLAIN = Installed("1.31.1", ("CPUExecutionProvider",))


@pytest.mark.parametrize(
    ("here", "target"),
    [(VNNI, "onnxruntime-x86"), (AVX2, "onnxruntime-x86-avx2"), (ARM, "onnxruntime-arm")],
)
def test_the_processor_decides_which_target_of_onnxruntime_it_is(here: Processor, target: str) -> None:
    name, why = choose(TARGETS, here, PLAIN)
    assert name == target
    assert why == f"target is {target}: this processor is {here}, and onnxruntime 1.31.1 runs models"


def test_every_kind_of_processor_has_exactly_one_target() -> None:
    assert sorted(kind for kinds in TARGETS.values() for kind in kinds) == sorted(KINDS)


def test_other_runtimes_are_named_and_not_taken() -> None:
    providers = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    target, why = choose(TARGETS, VNNI, Installed("1.31.1", providers, "2026.4.1"))
    assert target == "onnxruntime-x86"
    assert "for OpenVINO 2026.4.1, which is installed too, give --target openvino" in why
    assert (
        "for onnxruntime's TensorrtExecutionProvider, which is installed too, give --target tensorrt" in why
    )
    assert "CUDA" not in why


def test_openvino_is_named_once() -> None:
    _, why = choose(TARGETS, VNNI, Installed("1.31.1", ("OpenVINOExecutionProvider",), "2026.4.1"))
    assert why.count("--target openvino") == 1
    _, why_other = choose(TARGETS, VNNI, Installed("1.31.1", ("OpenVINOExecutionProvider",)))
    assert "for onnxruntime's OpenVINOExecutionProvider" in why_other


def test_a_machine_of_no_target_is_an_error_that_names_the_targets() -> None:
    with pytest.raises(
        ConfigError, match=r"no target is for this processor \(riscv64\).* glow, .*qnn.*--config"
    ):
        choose(TARGETS, RISCV, PLAIN)


def test_what_could_not_be_told_is_said() -> None:
    here = Processor("AMD64", "", ("avx2",), "whether it has AVX-VNNI cannot be told on Windows")
    assert choose(TARGETS, here, PLAIN)[1].endswith("AVX-VNNI cannot be told on Windows")


def test_a_default_that_is_another_machines_is_said() -> None:
    assert default_doubt("onnxruntime-x86", TARGETS, VNNI) == ""
    assert default_doubt("tensorrt", TARGETS, ARM) == ""
    assert default_doubt("onnxruntime-x86", TARGETS, AVX2) == (
        "target is onnxruntime-x86, the default, which is for x86-64 with VNNI; this processor is x86-64 "
        "without VNNI (avx2): --target auto takes onnxruntime-x86-avx2"
    )
    assert "choose a target of your own" in default_doubt("onnxruntime-x86", TARGETS, RISCV)


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
        ("onnxruntime-x86", VNNI, ""),
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


@pytest.mark.parametrize("here", [ZEN5, AVX2])
def test_packaged_times_state_an_error_and_the_models_that_it_was_held_against(here: Processor) -> None:
    table = cost_table.costs_on("onnxruntime-x86", here)
    assert table is not None
    assert 0.0 < table.error < 0.2
    assert len(table.held) >= 10

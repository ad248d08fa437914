"""This machine: its processor, and the targets whose runtime it has."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal

from .packaged import target_names

# The processor of this machine: its architecture, and the instruction sets that matter to integer kernels.
#
# Linux lists them in /proc/cpuinfo. On other systems numpy has asked the processor when it was imported; of
# the sets that matter it does not know AVX-VNNI, the VNNI of Intel Core processors from the 12th generation
# on.

ProcessorKind = Literal["x86-64-vnni", "x86-64", "arm64"]
"""Processors whose integer kernels have different limits."""

KINDS: Mapping[ProcessorKind, str] = {
    "x86-64-vnni": "x86-64 with VNNI",
    "x86-64": "x86-64 without VNNI",
    "arm64": "64-bit Arm",
}
"""What each is called in sentences."""

X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")
"""What systems call the two architectures, in lower case."""

VNNI = ("avx_vnni", "avx512_vnni")
FEATURES = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
"""The instruction sets that matter, as Linux calls them; asimddp is the dot product of Arm."""

_NUMPY = {"AVX2": "avx2", "AVX512F": "avx512f", "AVX512VNNI": "avx512_vnni", "ASIMDDP": "asimddp"}


@dataclass(frozen=True)
class Processor:
    """A processor."""

    machine: str  # its architecture, as Python's module platform calls it
    model: str  # what it calls itself
    features: tuple[str, ...]  # those of `FEATURES` that it has, in their order

    @property
    def kind(self) -> ProcessorKind | None:
        """The kind of its integer kernels, or None if no kind is known for its architecture."""
        if self.machine.lower() in ARM:
            return "arm64"
        if self.machine.lower() not in X86:
            return None
        return "x86-64-vnni" if set(VNNI) & set(self.features) else "x86-64"

    def has_kernels_of(self, measured: str) -> bool:
        """Whether it has the instruction sets of a processor that was measured, and so its kernels."""
        words = measured.replace(",", " ").split()
        return tuple(name for name in FEATURES if name in words) == self.features

    def __str__(self) -> str:
        """Return its description in one line, for people."""
        kind = self.kind
        if kind is None:
            return self.machine
        return f"{KINDS[kind]} ({' '.join(self.features) or 'no int8 dot product'})"


@cache
def processor() -> Processor:
    """Return the processor of this machine."""
    machine = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        return of_cpuinfo(machine, info.read_text(encoding="utf-8", errors="replace"))
    return Processor(machine, platform.processor() or machine, _numpy_features())


def of_cpuinfo(machine: str, text: str) -> Processor:
    """Return the processor that the text of /proc/cpuinfo describes, the last one if there are several."""
    lines = (line.partition(":") for line in text.splitlines())
    entries = {key.strip(): value.strip() for key, _, value in lines}
    flags = entries.get("flags", entries.get("Features", "")).split()
    model = entries.get("model name", platform.processor() or machine)
    return Processor(machine, model, tuple(name for name in FEATURES if name in flags))


def _numpy_features() -> tuple[str, ...]:
    """Return the instruction sets that numpy found when it was imported."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):  # numpy 2, numpy 1
        try:
            features: Mapping[str, bool] = import_module(name).__cpu_features__
        except (ImportError, AttributeError):
            continue
        present = {_NUMPY[key] for key, has_it in features.items() if has_it and key in _NUMPY}
        return tuple(name for name in FEATURES if name in present)
    return ()


OTHERS = {
    "TensorrtExecutionProvider": "tensorrt",
    "NvTensorRTRTXExecutionProvider": "tensorrt",
    "MIGraphXExecutionProvider": "migraphx",
    "QNNExecutionProvider": "qnn",
    "OpenVINOExecutionProvider": "openvino",
}
"""Execution providers of onnxruntime that have a target of their own."""


_MACHINES = {"onnxruntime-x86": X86, "onnxruntime-arm": ARM}
"""What the name of a target of onnxruntime's CPU begins with, and the machines whose kernels it is about."""


def is_of_machine(target: str, machine: str | None = None) -> bool:
    """Whether a target is for onnxruntime on the architecture of a machine; None for this machine."""
    here = (machine or platform.machine()).lower()
    return any(target.startswith(name) and here in machines for name, machines in _MACHINES.items())


def runs_here(
    target: str, runtime: str = "onnxruntime", provider: str = "", machine: str | None = None
) -> bool:
    """Whether a runtime here is the target's, so that arithmetic and times agree; True for own targets.

    `runtime` is "onnxruntime" or "openvino"; `provider` the full name of its provider, "" for the CPU.
    """
    if target not in target_names():
        return True
    if runtime != "onnxruntime":
        return target == runtime
    if provider in OTHERS:
        return target == OTHERS[provider]
    return is_of_machine(target, machine)


def how_to_time(target: str) -> str:
    """Return the advice on how the speed of a model for a target is measured."""
    if target == "openvino":
        return "measure with qprof evaluate --runtime openvino"
    if target in OTHERS.values():  # whose short names providers have
        return f"measure on the target with qprof evaluate --provider {target}"
    if runs_here(target):
        return "measure with qprof evaluate"
    return "measure in the runtime of the target"


@cache
def int8_kernels_saturate() -> bool:
    """Whether onnxruntime's product of the largest uint8 and int8 values is wrong here: it is computed."""
    import numpy as np
    from onnx import TensorProto, helper

    from ...profiles.runtime.providers import CPU, new_session, new_session_options

    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
            "probe",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, (4, 64))],
            [helper.make_tensor_value_info("y", TensorProto.INT32, (4, 8))],
            [helper.make_tensor("w", TensorProto.INT8, (64, 8), b"\x7f" * 512, raw=True)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    session = new_session(model.SerializeToString(), new_session_options(), CPU)
    (product,) = session.run(None, {"x": np.full((4, 64), 255, np.uint8)})
    return bool((product != 64 * 255 * 127).any())

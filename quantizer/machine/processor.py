"""The processor of this machine: its architecture, and the instruction sets that matter to integer kernels.

Linux lists them in /proc/cpuinfo. On other systems numpy has asked the processor when it was imported; of the
sets that matter it does not know AVX-VNNI, the VNNI of Intel Core processors from the 12th generation on.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal

ProcessorKind = Literal["x86-64-vnni", "x86-64", "arm64"]
"""Processors whose integer kernels differ in what they allow."""

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
    """A processor.

    Attributes:
        machine: its architecture, as Python's module platform calls it.
        model: what it calls itself.
        features: those of `FEATURES` that it has, in their order.
        doubt: what could not be told, as a sentence; "" for nothing.
    """

    machine: str
    model: str
    features: tuple[str, ...]
    doubt: str = ""

    @property
    def kind(self) -> ProcessorKind | None:
        """What its integer kernels allow; None where no kind is known for its architecture."""
        if self.machine.lower() in ARM:
            return "arm64"
        if self.machine.lower() not in X86:
            return None
        return "x86-64-vnni" if set(VNNI) & set(self.features) else "x86-64"

    def __str__(self) -> str:
        """Return what it is in one line, for people."""
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
    features = _numpy_features()
    hidden = sys.platform == "win32" and machine.lower() in X86 and "avx512_vnni" not in features
    doubt = "whether it has AVX-VNNI cannot be told on Windows: if so, give --target onnxruntime-x86"
    return Processor(machine, platform.processor() or machine, features, doubt if hidden else "")


def of_cpuinfo(machine: str, text: str) -> Processor:
    """Return the processor that /proc/cpuinfo describes.

    Args:
        machine: its architecture.
        text: of that file; the last processor counts where there are several.
    """
    lines = (line.partition(":") for line in text.splitlines())
    entries = {key.strip(): value.strip() for key, _, value in lines}
    flags = entries.get("flags", entries.get("Features", "")).split()
    model = entries.get("model name", platform.processor() or machine)
    return Processor(machine, model, tuple(name for name in FEATURES if name in flags))


def _numpy_features() -> tuple[str, ...]:
    """Return what numpy found when it was imported."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):  # numpy 2, numpy 1
        try:
            found: Mapping[str, bool] = import_module(name).__cpu_features__
        except (ImportError, AttributeError):
            continue
        present = {_NUMPY[key] for key, there in found.items() if there and key in _NUMPY}
        return tuple(name for name in FEATURES if name in present)
    return ()

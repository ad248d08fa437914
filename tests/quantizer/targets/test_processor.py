"""What is read of a processor, and the kind that follows."""

from __future__ import annotations

import pytest
from qprof_onnx.quantizer.targets import machine as module
from qprof_onnx.quantizer.targets.machine import FEATURES, KINDS, Processor, of_cpuinfo, processor

ZEN = "model name\t: AMD EPYC\nflags\t\t: fpu avx avx2 avx512f avx512_vnni avx512_bf16\n"
CORE = "model name\t: Intel Core i5\nflags\t\t: fpu avx avx2 avx_vnni\n"
OLD = "model name\t: Intel Xeon E5\nflags\t\t: fpu avx avx2 fma\n"
GRAVITON = "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd asimddp i8mm\n"


@pytest.mark.parametrize(
    ("machine", "text", "kind", "features"),
    [
        ("x86_64", ZEN, "x86-64-vnni", ("avx2", "avx512f", "avx512_vnni")),
        ("x86_64", CORE, "x86-64-vnni", ("avx2", "avx_vnni")),
        ("x86_64", OLD, "x86-64", ("avx2",)),
        ("aarch64", GRAVITON, "arm64", ("asimddp", "i8mm")),
        ("aarch64", "Features\t: fp asimd\n", "arm64", ()),
        ("riscv64", "isa\t: rv64imafdcv\n", None, ()),
        ("AMD64", "", "x86-64", ()),
    ],
)
def test_the_kind_follows_from_architecture_and_instruction_sets(
    machine: str, text: str, kind: str | None, features: tuple[str, ...]
) -> None:
    found = of_cpuinfo(machine, text)
    assert (found.kind, found.features) == (kind, features)


def test_a_processor_is_one_line_for_people() -> None:
    assert str(of_cpuinfo("x86_64", CORE)) == "x86-64 with VNNI (avx2 avx_vnni)"
    assert str(of_cpuinfo("aarch64", "")) == "64-bit Arm (no int8 dot product)"
    assert str(of_cpuinfo("riscv64", "")) == "riscv64"


def test_where_linux_tells_nothing_numpy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    told = processor()
    processor.cache_clear()
    monkeypatch.setattr(module, "Path", lambda path: Nowhere())
    try:
        found = processor()
    finally:
        processor.cache_clear()
    known = ("avx2", "avx512f", "avx512_vnni", "asimddp")
    assert found.features == tuple(name for name in told.features if name in known)


def test_the_processor_of_this_machine_is_read() -> None:
    found = processor()
    assert isinstance(found, Processor)
    assert found.kind in (*KINDS, None)
    assert set(found.features) <= set(FEATURES)


class Nowhere:
    def exists(self) -> bool:
        return False

"""Kernels for processors and compilers that are not here: NEON under an emulator, MSVC's path by Clang.

The observers' tests themselves run on 64-bit Arm with tests/platforms/aarch64.sh.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from qprof_onnx.profiles.observers.channel_counter import (
    ArraySlice,
    ChannelLayout,
    ChannelSums,
    accumulate_channels_numpy,
)
from qprof_onnx.profiles.observers.histogram_counter import Bins, count_histograms_numpy, empty_ranges
from qprof_onnx.profiles.records.histogram import bin_exponent, grid_index

HERE = Path(__file__).parent / "kernels"
SOURCES = Path(__file__).parents[3] / "profiles" / "observers"
ARM_COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
LEVELS = 2
"""Kernels on Arm: NEON and plain C."""
TYPES = {"e": np.float16, "b": ml_dtypes.bfloat16, "f": np.float32, "d": np.float64}

needs_arm = pytest.mark.skipif(
    not (shutil.which(ARM_COMPILER) and shutil.which(EMULATOR)),
    reason="needs the packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user",
)
needs_clang = pytest.mark.skipif(not shutil.which("clang"), reason="needs clang, which compiles for Windows")


def run(command: list[str | Path], given: bytes = b"") -> bytes:
    result = subprocess.run(command, input=given, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def arm_program(name: str, out: Path) -> Path:
    """Compile kernels/run_NAME.c for 64-bit Arm."""
    options = ["-O3", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-static"]
    trimmed = ["-ffunction-sections", "-Wl,--gc-sections"]  # without what calls Python
    paths = ["-I", str(HERE), "-I", str(SOURCES)]
    program = out / name
    run([ARM_COMPILER, *options, *trimmed, *paths, HERE / f"run_{name}.c", "-lm", "-o", program])
    return program


def arrays() -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    """Return arrays of every type: ordinary values, tails of every length, tiny numbers, any bits."""
    rng = np.random.default_rng(14)
    for letter, dtype in TYPES.items():
        for size in (1, 15, 16, 17, 1023, 1041, 5000):
            values = rng.standard_normal(size)
            yield letter, values.astype(dtype)
            yield letter, np.maximum(values, 0).astype(dtype)
        yield letter, (rng.standard_normal(3000) * np.exp2(rng.integers(-24, 15, 3000))).astype(dtype)
        bits = rng.integers(0, 1 << 16, 4096 * np.dtype(dtype).itemsize // 2, dtype=np.uint16)
        yield letter, bits.view(dtype)
        with np.errstate(invalid="ignore"):
            yield letter, np.concatenate([values.astype(dtype), np.array([np.inf, np.nan, 1]).astype(dtype)])
    yield "f", np.array([-1e-45, 1e-45, -0.0, 0.0] * 8 + [3e38], np.float32)
    yield "f", np.array([-1e-45, 5000, -1e-40] * 400, np.float32)


def bins_for(values: npt.NDArray[np.generic]) -> Bins:
    """Return bins for the finite elements."""
    wide = values.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    low, high = float(wide.min()), float(wide.max())
    exponent = bin_exponent(low, high)
    first = grid_index(low, exponent)
    count = grid_index(high, exponent) - first + 1
    return Bins(low, high, exponent, first, np.zeros(count, np.int64), np.zeros(1, np.int64))


@needs_arm
def test_the_neon_histograms_are_those_of_numpy(tmp_path: Path) -> None:
    finite, given = [], b""
    for letter, values in arrays():
        with np.errstate(invalid="ignore"):
            kept = values[np.isfinite(values.astype(np.float64))]
        bins = bins_for(kept)
        if abs(bins.exponent) > 126 or abs(bins.first) > 1 << 30:  # such are left to numpy
            continue
        finite.append((kept, bins))
        given += struct.pack(
            "=5q2d",
            ord(letter),
            kept.size,
            bins.exponent,
            bins.first,
            bins.counts.size,
            bins.minimum,
            bins.maximum,
        )
        given += kept.tobytes()
    assert len(finite) > 60
    written = run([EMULATOR, arm_program("counter", tmp_path)], given)
    at = 0
    for kept, bins in finite:
        ranges = empty_ranges(1)
        assert count_histograms_numpy([kept], [bins], ranges) == []
        for _ in range(LEVELS):
            stop, nan, inf, zeros, _, _, low, high = struct.unpack_from("=4q4d", written, at)
            counts = np.frombuffer(written, np.int64, bins.counts.size, at + 64)
            at += 64 + counts.nbytes
            assert (stop, nan, inf, zeros) == (kept.size, 0, 0, int(bins.zeros[0]))
            assert (low, high) == tuple(ranges[0])
            np.testing.assert_array_equal(counts, bins.counts)
    assert at == len(written)


@needs_arm
def test_the_neon_ranges_are_those_of_numpy(tmp_path: Path) -> None:
    every = list(arrays())
    # Without bins nothing is counted, and all is scanned.
    given = b"".join(
        struct.pack("=5q2d", ord(letter), values.size, 0, 0, 0, np.inf, -np.inf) + values.tobytes()
        for letter, values in every
    )
    written = run([EMULATOR, arm_program("counter", tmp_path)], given)
    records = struct.iter_unpack("=4q4d", written)
    for _, values in every:
        (expected,) = count_histograms_numpy([values], [Bins.empty()])
        for _ in range(LEVELS):
            stop, nan, inf, zeros, low, high, _, _ = next(records)
            found = (stop, low, high, nan, inf)
            assert found == (0, expected.low, expected.high, expected.nan, expected.inf)
            assert zeros == 0
    assert next(records, None) is None


@needs_arm
def test_the_neon_channel_sums_are_those_of_numpy(tmp_path: Path) -> None:
    jobs, given = [], b""
    layouts = ((1, 1, 1), (1, 1, 40), (3, 7, 1), (5, 300, 1), (2, 9, 16), (19, 64, 1), (2, 3, 5))
    for number, (letter, values) in enumerate(arrays()):
        layout = ChannelLayout(*layouts[number % len(layouts)])
        units = values.size // layout.unit
        sums = ChannelSums.empty(layout.groups * layout.lanes)
        run_of = ArraySlice(layout, units // 3, units, sums)
        jobs.append((values, run_of))
        given += struct.pack("=7q", ord(letter), values.size, *layout, run_of.start, run_of.stop)
        given += sums.ranges.tobytes() + values.tobytes()
    written = run([EMULATOR, arm_program("channels", tmp_path)], given)
    at = 0
    for values, run_of in jobs:
        with np.errstate(over="ignore", invalid="ignore"):
            accumulate_channels_numpy([values], [run_of])
        for _ in range(LEVELS):
            for expected in (run_of.sums.ranges, run_of.sums.sums):
                found = np.frombuffer(written, expected.dtype, expected.size, at).reshape(expected.shape)
                at += found.nbytes
                np.testing.assert_array_equal(found, expected)
    assert at == len(written)


@needs_clang
@pytest.mark.parametrize("source", ["_counter.c", "_channels.c"])
@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_the_sources_compile_as_msvc_reads_them(source: str, processor: str, tmp_path: Path) -> None:
    """Clang defines what MSVC defines, not what GCC does; it has to be told which instructions it has."""
    sets = ["avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c", "xsave"]
    options = [
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unknown-pragmas",
        "-ffreestanding",
        "-fms-extensions",
    ]
    options += [f"-m{name}" for name in sets] if processor == "x86_64" else []
    paths = ["-isystem", str(HERE), "-isystem", str(HERE / "windows")]
    target = f"--target={processor}-pc-windows-msvc"
    run(["clang", target, *options, *paths, "-c", SOURCES / source, "-o", tmp_path / "kernels.obj"])


@pytest.mark.parametrize("source", ["_counter.c", "_channels.c"])
def test_words_of_one_compiler_stand_in_the_header_alone(source: str) -> None:
    text = (SOURCES / source).read_text(encoding="utf-8")
    assert (
        re.findall(r"__\w*(?:attribute|builtin|asm|declspec)\w*|\brestrict\b|_MSC_VER|__GNUC__", text) == []
    )

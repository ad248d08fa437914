"""Arrays in a temporary file: they are arrays as any, and no memory of the process's own."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import UINT4, QuantParams
from qprof_onnx.quantizer.numerics.array_file import FILE_GROWTH_BYTES, MIN_FILE_BYTES, ArrayFile, is_in_file

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="arrays are in memory here")
MANY = MIN_FILE_BYTES // 4


def test_arrays_do_not_overlap_and_stay_when_the_file_grows() -> None:
    file = ArrayFile(0)
    arrays = [
        file.empty((4, MANY + 3), np.float32) for _ in range(FILE_GROWTH_BYTES // (4 * MIN_FILE_BYTES) + 3)
    ]
    for number, array in enumerate(arrays):
        array[:] = number
    del file
    gc.collect()
    assert all((array == number).all() for number, array in enumerate(arrays))


def test_a_small_array_is_in_memory_and_so_are_the_first() -> None:
    assert not is_in_file(ArrayFile(0).empty((10,), np.float32))
    file = ArrayFile(4 * MANY)
    assert [is_in_file(file.empty((MANY,), np.float32)) for _ in range(3)] == [False, True, True]


def test_on_a_full_disk_an_array_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not is_in_file(ArrayFile(0).empty((MANY,), np.float32))


def test_parameters_are_kept_where_they_are_and_cannot_be_written_to() -> None:
    file = ArrayFile(0)
    scale, point = file.empty((1, MANY), np.float32), file.empty((1, MANY), np.int32)
    scale[:], point[:] = 0.5, 7
    params = QuantParams(scale.reshape(-1), point.reshape(-1), UINT4, 0, 32)
    assert is_in_file(params.scale)
    assert is_in_file(params.zero_point)
    with pytest.raises(ValueError, match="read-only"):
        params.scale[0] = 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_large_arrays_are_no_memory_of_the_process() -> None:
    code = """
import numpy as np
from qprof_onnx.quantizer.numerics.array_file import ArrayFile
def own():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
file = ArrayFile(0)
before = own()
array = file.empty((50 << 20,), np.float32)
array[:] = 1.0
print(own() - before)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 20_000  # kB, of 200 MB

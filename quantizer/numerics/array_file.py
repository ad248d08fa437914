"""Large arrays in a temporary file that is mapped into memory, in place of memory of the process's own.

The scales of all blocks of a model stay as long as its plan: 0.25 bytes for a weight, 2 GB for eight billion.
The system writes such pages out and drops them at will.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

MEMORY_BYTES = 32 << 20
"""Bytes of arrays that are in memory before any goes to a file."""

MIN_FILE_BYTES = 16 << 10
"""Bytes of an array from which it is in the file: a smaller one would waste much of its last page."""

FILE_GROWTH_BYTES = 64 << 20
"""Bytes requested from the file system at once, unless an array needs more."""


class OwnMap(mmap.mmap):
    """A mapped file that nothing else has a name for, so that nobody writes to it."""


class ArrayFile:
    """Room for arrays in memory and in temporary files, which go with their last array."""

    def __init__(self, in_memory: int = MEMORY_BYTES) -> None:
        """Make room; the first `in_memory` bytes of arrays are in memory."""
        self._map: OwnMap | None = None
        self._used, self._left = 0, in_memory

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array with undefined elements.

        It is in memory if it is small, one of the first, or there can be no file.
        """
        count, element = math.prod(shape), np.dtype(dtype)
        size = count * element.itemsize
        if size <= self._left or size < MIN_FILE_BYTES or not hasattr(os, "posix_fallocate"):
            self._left -= size
            return np.empty(shape, element)
        if self._map is None or self._used + size > len(self._map):
            wanted = max(FILE_GROWTH_BYTES, size)
            try:
                with tempfile.TemporaryFile(prefix="qprof-") as file:
                    os.posix_fallocate(file.fileno(), 0, wanted)  # a full disk would end the process later
                    self._map, self._used = OwnMap(file.fileno(), wanted), 0
            except OSError:
                return np.empty(shape, element)
        start = self._used
        self._used += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return np.frombuffer(self._map, element, count, start).reshape(shape)


def is_in_file(array: npt.NDArray[Any]) -> bool:
    """Whether an array lies in an `ArrayFile`."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, OwnMap)

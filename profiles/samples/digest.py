"""The identity of calibration data: a digest that does not depend on order, batching or sharding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records.profile import DataId
from .samples import InputSpec, Sample

DIGEST_BYTES = 16


def data_id(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> DataId:
    """Return the identity of the arrays that are run together; `DataId.merged` gives that of several.

    If all inputs share a free leading dimension, their rows i together are one sample, so that it does not
    matter how the samples were batched; otherwise all arrays together are one sample. The digest of a sample
    is blake2b over name, type, shape and little-endian elements of each input, sorted by name, and
    these add up modulo 2**128.

    Args:
        arrays: by input name.
        specs: inputs of the model.
    """
    named = [(name, _contiguous(arrays[name])) for name in sorted(arrays)]
    if not _is_batch(arrays, specs):
        return DataId(1, _hex(_digest(named)))
    rows = len(next(iter(arrays.values())))
    total = sum(_digest([(name, array[row]) for name, array in named]) for row in range(rows))
    return DataId(rows, _hex(total))


def rows_of(sample: Sample, specs: Sequence[InputSpec]) -> Iterator[Sample]:
    """Yield the rows of a batch, each as a batch of one; a sample that is not a batch as it is."""
    if not _is_batch(sample.arrays, specs):
        yield sample
        return
    for row in range(len(next(iter(sample.arrays.values())))):
        arrays = {name: array[row : row + 1] for name, array in sample.arrays.items()}
        yield Sample(f"{sample.name}[{row}]", arrays)


def _is_batch(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> bool:
    """Whether all inputs have one and the same free leading dimension, and these arrays agree."""
    if not specs or any(not spec.shape for spec in specs):
        return False
    leading = {spec.shape[0] for spec in specs if spec.shape}
    if len(leading) > 1 or isinstance(next(iter(leading)), int):
        return False
    return len({array.shape[0] for array in arrays.values()}) == 1


def _contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind in "OU":
        return array.astype(object)
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes a scalar an array


def _digest(arrays: Sequence[tuple[str, npt.NDArray[Any] | str]]) -> int:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, array in arrays:
        parts: list[bytes | memoryview]
        values = np.asarray(array)
        if values.dtype.kind in "OU":
            texts = [str(text).encode() for text in values.flat]
            parts = [b"string", _numbers(values.shape), *texts]
        else:
            little = values.astype(values.dtype.newbyteorder("<"), copy=False).reshape(-1)
            parts = [values.dtype.name.encode(), _numbers(values.shape), little.view(np.uint8).data]
        for part in (name.encode(), *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return int.from_bytes(digest.digest(), "big")


def _numbers(shape: tuple[int, ...]) -> bytes:
    return ",".join(map(str, shape)).encode()


def _hex(number: int) -> str:
    return f"{number % (1 << 8 * DIGEST_BYTES):0{2 * DIGEST_BYTES}x}"

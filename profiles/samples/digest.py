"""The identity of calibration data: a digest that does not depend on order, batching or sharding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..readers.checks import batch_size, of_batches
from ..readers.values import InputSpec, Sample
from ..records.profile import DataId

DIGEST_BYTES = 16
DIGESTS = 1 << 8 * DIGEST_BYTES
"""Digests are added up modulo this."""


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
    return id_of_digests(sample_digests(arrays, specs))


def sample_digests(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> list[int]:
    """Return the digest of each of the samples that arrays hold, which `data_id` adds up."""
    named = [(name, _contiguous(arrays[name])) for name in sorted(arrays)]
    rows = batch_size(arrays, specs)
    if rows is None:
        return [_digest(named)]
    return [_digest([(name, array[row]) for name, array in named]) for row in range(rows)]


def id_of_digests(digests: Sequence[int]) -> DataId:
    """Return the identity of the samples that have these digests."""
    return DataId(len(digests), digest_text(sum(digests)))


def rows_of(sample: Sample, specs: Sequence[InputSpec]) -> Iterator[Sample]:
    """Yield the rows of a batch, each as a batch of one; a sample that is not a batch as it is.

    For a model with a fixed batch of 1, `of_batches` gives the inputs that its batches have.
    """
    rows = batch_size(sample.arrays, of_batches(specs))
    if rows is None:
        yield sample
        return
    for row in range(rows):
        arrays = {name: array[row : row + 1] for name, array in sample.arrays.items()}
        yield Sample(f"{sample.name}[{row}]", arrays)


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


def digest_text(number: int) -> str:
    """Return a digest, or a sum of them, as hexadecimal digits."""
    return f"{number % DIGESTS:0{2 * DIGEST_BYTES}x}"

"""One run of a model that was just written, on made-up inputs: does it run at all?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import onnxruntime as ort

from ...profiles.base.errors import ModelError
from ...profiles.runtime.refusals import RUNTIME_ERRORS, first_line

SIZES = (1, 8, 64)
"""What free dimensions are tried with, one after the other. The first of an input, the batch, is always 1."""

_NUMPY: Mapping[str, np.dtype[Any]] = {
    **{"float16": np.dtype("float16"), "float": np.dtype("float32"), "double": np.dtype("float64")},
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": np.dtype("bool"),
}


@dataclass(frozen=True)
class _Input:
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    @property
    def free(self) -> int:
        """How many dimensions behind the batch are free."""
        return self.shape[1:].count(None)

    def size(self, elements: float) -> int:
        """Return the size of each free dimension with which a row has so many elements."""
        fixed = math.prod(dim for dim in self.shape if dim)
        return max(1, round((elements / fixed) ** (1.0 / self.free))) if self.free else 1

    def array(self, size: int, number: int) -> Any:
        dims = [dim if dim is not None else (size if place else 1) for place, dim in enumerate(self.shape)]
        if self.dtype.kind == "f":
            return np.random.default_rng(0).uniform(-1.0, 1.0, dims).astype(self.dtype)
        return np.full(dims, number, self.dtype)


def run_once(
    session: ort.InferenceSession,
    original: Callable[[], ort.InferenceSession],
    name: str,
    elements: Mapping[str, float],
) -> str | None:
    """Run a model once; return a note when no input can be made that the original model takes either.

    Inputs are numbers between -1 and 1, or whole ones; what a model asks of them beyond type and shape nobody
    can know. So a run that fails counts against the model only where the original does not fail.

    Args:
        session: of the new model.
        original: opens the float model; called only when a run fails.
        name: what errors call the new model.
        elements: input -> how many elements a sample of it has, as far as a profile tells.

    Raises:
        ModelError: the original model runs on inputs on which the new one fails.
    """
    failures: list[tuple[dict[str, Any], str]] = []
    for feed in _feeds(session, elements):
        sentence = _failure(session, feed)
        if not sentence:
            return None
        failures.append((feed, sentence))
    known = original() if failures else None
    for feed, sentence in failures:
        if known is not None and not _failure(known, feed):
            raise ModelError(
                f"{name}: onnxruntime runs the float model and not this one: {sentence}; "
                "keep the node that it names float with --keep-float, or choose another form"
            )
    return "it was loaded and not run: no inputs could be made up that the float model takes"


def _failure(session: ort.InferenceSession, feed: Mapping[str, Any]) -> str:
    """Return why a run fails, "" when it does not."""
    options = ort.RunOptions()
    options.log_severity_level = 4
    try:
        session.run(None, dict(feed), options)
    except RUNTIME_ERRORS as error:
        return first_line(error)
    return ""


def _feeds(session: ort.InferenceSession, elements: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Yield inputs to try; none for a model whose inputs cannot be made."""
    inputs = []
    for value in session.get_inputs():
        dtype = _NUMPY.get(value.type.removeprefix("tensor(").removesuffix(")"))
        if dtype is None or value.shape is None:
            return
        dims = tuple(dim if isinstance(dim, int) else None for dim in value.shape)
        inputs.append(_Input(value.name, dtype, dims))
    sizes: list[dict[str, int]] = []
    if any(i.free and i.name in elements for i in inputs):
        sizes.append({i.name: i.size(elements[i.name]) if i.name in elements else 8 for i in inputs})
    free = any(i.free for i in inputs)
    sizes += [dict.fromkeys((i.name for i in inputs), size) for size in (SIZES if free else SIZES[:1])]
    numbers = (1, 0) if any(i.dtype.kind in "iu" for i in inputs) else (1,)
    for size, number in product(sizes, numbers):
        yield {i.name: i.array(size[i.name], number) for i in inputs}

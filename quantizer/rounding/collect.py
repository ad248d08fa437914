"""Second moments collected from samples: the float model runs, and the inputs of its products are observed.

One session returns the inputs of as many products as fit in `MEMORY`, with their moments; the samples run
once for each such slice of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import DataError
from ...profiles.base.tool import Progress
from ...profiles.readers.values import Sample
from ...profiles.runtime.profiling_session import (
    OptimisedGraph,
    optimised,
    session_for,
    size_name,
    size_session,
)
from ...profiles.runtime.run_sample import run_sample
from .im2col import ProductInput, im2col_rows
from .second_moments import Moments, moments_bytes, moments_of

MEMORY = 512 << 20
"""Bytes that tensors and moments of a slice take together, unless a single one takes more."""

ROWS = 1 << 14
"""Rows of a tensor that all samples give together, unless there are more samples (see `im2col_rows`). Four
times as many gained nothing on two models (waifu2x, silero), and an eighth lost 0.3 and 1.4 dB."""


def collect_moments(
    model: ir.Model,
    inputs: Sequence[ProductInput],
    samples: Iterable[Sample],
    progress: Progress | None = None,
) -> Iterator[tuple[ProductInput, Moments]]:
    """Yield the moments of what products multiply, in the order of `inputs`.

    Args:
        model: the float model.
        inputs: of products, no two alike.
        samples: can be iterated more than once.
        progress: called after each run of a sample, with the number of runs and their total.

    Raises:
        DataError: there are no samples, or one cannot be run. ModelError: the model cannot be loaded.
    """
    if not inputs:
        return
    names = list(dict.fromkeys(source.tensor for source in inputs))
    with _tapped(model, names) as graph:
        count, slices = _sliced(graph, inputs, samples)
        for number, chosen in enumerate(slices):
            runs = None if progress is None else partial(_told, progress, number * count, len(slices) * count)
            with session_for(graph, _made(graph, chosen)) as session:
                yield from _moments(_Slice(graph, session, chosen, -(-ROWS // count)), samples, runs)


@dataclass(frozen=True, eq=False)
class _Slice:
    """Inputs whose moments are collected together.

    Attributes:
        graph, session: what runs.
        inputs: those of this slice.
        most: rows that a sample gives of each.
    """

    graph: OptimisedGraph
    session: ort.InferenceSession
    inputs: Sequence[ProductInput]
    most: int


def _moments(
    part: _Slice, samples: Iterable[Sample], progress: Callable[[int], None] | None
) -> Iterator[tuple[ProductInput, Moments]]:
    sums: dict[ProductInput, Moments] = {}
    fetched = [part.graph.sources[name] for name in _made(part.graph, part.inputs)]
    for number, sample in enumerate(samples):
        arrays = {**sample.arrays, **run_sample(part.session, fetched, sample)}
        for source in part.inputs:
            where = f"sample {sample.name}: tensor '{source.tensor}'"
            name = part.graph.sources.get(source.tensor, source.tensor)
            rows = im2col_rows(np.asarray(arrays[name]), source, part.most)
            of_sample = moments_of(rows, where)
            sums[source] = sums[source].added(of_sample) if source in sums else of_sample
        if progress is not None:
            progress(number + 1)
    while sums:
        first = next(iter(sums))
        yield first, sums.pop(first)


def _told(progress: Progress, before: int, total: int, done: int) -> None:
    progress(before + done, total)


@contextmanager
def _tapped(model: ir.Model, names: Sequence[str]) -> Iterator[OptimisedGraph]:
    """Yield the optimised model with these tensors as outputs, graph inputs left out."""
    copy = model.clone()
    values = {value.name: value for node in copy.graph for value in node.outputs}
    there = {value.name for value in copy.graph.outputs}
    wanted = [name for name in names if name in values]
    copy.graph.outputs.extend(values[name] for name in wanted if name not in there)
    with optimised(copy, wanted, split=True, ordered=wanted) as graph:
        yield graph


def _made(graph: OptimisedGraph, inputs: Sequence[ProductInput]) -> list[str]:
    """Return the tensors among the inputs of products that nodes make."""
    return list(dict.fromkeys(r.tensor for r in inputs if r.tensor in graph.sources))


def _sliced(
    graph: OptimisedGraph, inputs: Sequence[ProductInput], samples: Iterable[Sample]
) -> tuple[int, list[list[ProductInput]]]:
    """Return how many samples there are, and the inputs in slices that fit in `MEMORY` for the first one."""
    first, count = None, 0
    for sample in samples:
        first, count = first or sample, count + 1
    if first is None:
        raise DataError(f"{getattr(samples, 'source', 'samples')}: there are no samples; give at least one")
    made = _made(graph, inputs)
    with size_session(graph, made) as session:
        sizes = run_sample(session, [output.name for output in session.get_outputs()], first)
    slices: list[list[ProductInput]] = []
    used, held = 0, set[str]()
    for source in inputs:
        name = source.tensor
        tensor = 4 * int(np.asarray(sizes[size_name(graph.sources[name])])) if name in graph.sources else 0
        own = moments_bytes(source.groups, source.columns)
        if not slices or used + own + (0 if name in held else tensor) > MEMORY:
            slices.append([])
            used, held = 0, set()
        used += own + (0 if name in held else tensor)
        held.add(name)
        slices[-1].append(source)
    return count, slices

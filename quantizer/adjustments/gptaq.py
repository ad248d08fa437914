"""GPTAQ for the weights of a plan: each is rounded for the inputs that the quantized model has.

The graph is cut into stages, in none of which a product depends on another. For each stage the inputs of its
products are computed in float and in the simulation, its weights are rounded, and both go on.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import DataError
from ...profiles.base.tool import Progress
from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.samples.values import Sample
from ..model.graph import name_of
from ..numerics.affine import dequantize, quantize
from ..operators.graph import Graph
from ..operators.table import product_layout
from ..operators.weight_layout import Array, Kernel
from ..plan.plan import QuantPlan, RoundingOffsets
from ..plan.store import dumps
from .checkpoint import RoundingCheckpoint
from .gptq import columns_of, flattened, gptaq, offsets_of
from .rounded_weights import Weight, params_digest, quantized_weights
from .second_moments import (
    ROWS,
    PairMoments,
    ProductInput,
    SegmentRuns,
    float_program,
    im2col_rows,
    moments_of_pair,
    product_input,
    simulated_program,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stage:
    """Nodes that are next to each other, and the weights among them that are rounded together.

    Attributes:
        start, end: from this node to before that one.
        weights: those of its products, each with the index of its node, by what the products read.
    """

    start: int
    end: int
    weights: Mapping[ProductInput, list[tuple[int, Weight]]]


@dataclass(frozen=True)
class Rounding:
    """How a weight is rounded, and what is added to each output channel to correct it (float32, or none)."""

    offsets: bytes
    correction: bytes = b""


def stages_of(graph: Graph, model: ir.Model, plan: QuantPlan) -> list[Stage]:
    """Return the stages of a model, in order: each as long as its products do not depend on each other."""
    weights = {weight.node.name: weight for weight in quantized_weights(graph, plan)}
    stages: list[Stage] = []
    start, found, results = 0, dict[ProductInput, list[tuple[int, Weight]]](), set[str]()
    for at, node in enumerate(model.graph):
        weight = weights.get(name_of(node))
        reading = None if weight is None else product_input(graph, weight.node, weight.array)
        if weight is not None and reading is not None:
            if reading.tensor in results:
                stages.append(Stage(start, at, found))
                start, found, results = at, {}, set()
            found.setdefault(reading, []).append((at, weight))
        inner = {name_of(v) for part in graph_attributes(node) for n in part.all_nodes() for v in n.inputs}
        if reading is not None or not results.isdisjoint({*map(name_of, node.inputs), *inner}):
            results |= {name_of(value) for value in node.outputs}
    return [*stages, Stage(start, len(model.graph), found)]


def find_asymmetric_roundings(
    model: ir.Model,
    graph: Graph,
    plan: QuantPlan,
    samples: Iterable[Sample],
    *,
    progress: Progress | None = None,
    checkpoint: RoundingCheckpoint | None = None,
) -> dict[str, RoundingOffsets]:
    """Return rounding offsets that do least to the outputs of their nodes, by node name in graph order.

    Args:
        model: the model that is planned.
        graph: its index.
        plan: its plan; nodes with corrected biases have them corrected again for the offsets.
        samples: can be iterated more than once.
        progress: called after each stage, with their number.
        checkpoint: has the roundings of stages that are finished, and gets those of the others.

    Raises:
        DataError: there are no samples, or one cannot be run. ModelError: a part of the model cannot be run.
    """
    stages, kept = stages_of(graph, model, plan), checkpoint or RoundingCheckpoint()
    if not any(stage.weights for stage in stages):
        return {}
    found: dict[str, RoundingOffsets] = {}
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        sides = _sides(model, graph, plan, samples, Path(folder))
        # What a stage is rounded to depends on the plan, and on all that was rounded before.
        digest = hashlib.sha256(dumps(replace(plan, notes=())).encode())
        for number, stage in enumerate(stages):
            for at, weight, rounding in _rounded(stage, sides, plan.adjustments.biases, digest, kept):
                found[weight.node.name] = RoundingOffsets(rounding.offsets, params_digest(weight.params))
                _apply(rounding, at, weight, sides[1])
            if number + 1 < len(stages):
                for side in sides:
                    side.advance(stage.start, stage.end)
            if progress is not None:
                progress(number + 1, len(stages))
    return {name: entry for name, entry in found.items() if any(entry.offsets)}


def _sides(
    model: ir.Model, graph: Graph, plan: QuantPlan, samples: Iterable[Sample], folder: Path
) -> tuple[SegmentRuns, SegmentRuns]:
    """Return the runs of the float model and of its simulation with the nearest weights."""
    programs = {"float": float_program(model), "quantized": simulated_program(model, graph, plan)}
    for name in programs:
        (folder / name).mkdir()
    exact, rounded = (SegmentRuns(program, samples, folder / name) for name, program in programs.items())
    if not len(exact):
        raise DataError(f"{getattr(samples, 'source', 'samples')}: there are no samples; give at least one")
    for weight in quantized_weights(graph, plan):
        rounded.set_constant(
            name_of(weight.value), dequantize(quantize(weight.array, weight.params), weight.params)
        )
    return exact, rounded


def _rounded(
    stage: Stage,
    sides: tuple[SegmentRuns, SegmentRuns],
    corrected: Collection[str],
    digest: hashlib._Hash,
    kept: RoundingCheckpoint,
) -> list[tuple[int, Weight, Rounding]]:
    """Return the roundings of a stage: those that were kept, or new ones, which are kept then."""
    placed = [(reading, at, weight) for reading, found in stage.weights.items() for at, weight in found]
    keys = []
    for reading, _, weight in placed:
        digest.update(repr((weight.node.name, reading, params_digest(weight.params))).encode())
        digest.update(np.ascontiguousarray(weight.array).data)
        keys.append(digest.digest())
    before = [kept.get(key) for key in keys]
    if all(content is not None for content in before):
        return [
            (at, weight, Rounding(content[: weight.array.size], content[weight.array.size :]))
            for (_, at, weight), content in zip(placed, before, strict=True)
            if content is not None
        ]
    moments, found = _moments(stage, *sides), []
    for (reading, at, weight), key in zip(placed, keys, strict=True):
        rounding = _rounding(weight, moments[reading], weight.node.name in corrected)
        kept.add(key, rounding.offsets + rounding.correction)
        found.append((at, weight, rounding))
    return found


def _moments(stage: Stage, exact: SegmentRuns, rounded: SegmentRuns) -> dict[ProductInput, PairMoments]:
    """Return the moments of what the products of a stage read in float, with what they read quantized."""
    most = -(-ROWS // len(exact))
    aliases = {
        reading: rounded.program.aliases.get((weights[0][1].node.name, reading.tensor), reading.tensor)
        for reading, weights in stage.weights.items()
    }
    names = list(dict.fromkeys(reading.tensor for reading in aliases))
    runs = (
        exact.values(stage.start, stage.end, names),
        rounded.values(stage.start, stage.end, list(dict.fromkeys(aliases.values()))),
    )
    found: dict[ProductInput, PairMoments] = {}
    for (title, x), (_, y) in zip(*runs, strict=True):
        for reading, alias in aliases.items():
            rows = (im2col_rows(x[reading.tensor], reading, most), im2col_rows(y[alias], reading, most))
            one = moments_of_pair(*rows, f"sample {title}: tensor '{reading.tensor}'")
            found[reading] = found[reading].added(one) if reading in found else one
    return found


def _rounding(weight: Weight, moments: PairMoments, centred: bool) -> Rounding:
    pairs = moments.means(centred)
    ends = np.cumsum([second.shape[1] for second, _ in pairs])[:-1]
    parts = zip(*(np.split(part, ends, axis=2) for part in flattened(weight)), pairs, strict=True)
    steps = np.concatenate([_solved(part, *pair) for *part, pair in parts], 2)
    offsets = offsets_of(weight, steps)
    if not centred:
        return Rounding(offsets.tobytes())
    error = np.asarray(weight.array, np.float64) - _values(weight, offsets)
    mean = moments.first / max(1, moments.own.rows)
    lost = np.matmul(columns_of(weight.node, error), mean[:, :, None])
    return Rounding(offsets.tobytes(), lost.astype(np.float32).tobytes())


def _solved(flat: Sequence[Floats], second: Floats, cross: Floats) -> Floats:
    weight, scale, low, high = flat
    return gptaq(weight, scale, low, high, second, cross=cross)[0]


def _apply(rounding: Rounding, at: int, weight: Weight, side: SegmentRuns) -> None:
    """Let the simulation go on with the weight as it is rounded, and with its bias corrected."""
    offsets = np.frombuffer(rounding.offsets, np.int8).reshape(weight.array.shape)
    side.set_constant(name_of(weight.value), _values(weight, offsets))
    layout = product_layout(weight.node)
    if not rounding.correction or layout is None or layout.kernel is Kernel.SCATTERS:
        return
    correction = np.frombuffer(rounding.correction, np.float32)
    if layout.kernel is Kernel.GATHERS:
        correction = correction.reshape(-1, *[1] * (weight.array.ndim - 2))
    side.add_to_result(at, weight.node.output, correction)


def _values(weight: Weight, offsets: Array) -> Array:
    """Return the float values of the quantized values that offsets lead to."""
    return dequantize(quantize(weight.array, weight.params).astype(np.int64) + offsets, weight.params)

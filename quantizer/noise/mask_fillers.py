"""Fillers: constants of attention masks such as -1e4, -1e9 or float32's lowest number. Pure.

A filler must vanish: Softmax, Exp and Sigmoid turn values far below the rest into 0, and a maximum ignores
them. But a filler is a thousand times as large as all other values. It would set the range of a quantized
tensor, so that all scores became one integer, and dominate the power of the signal to which noise is
compared. So fillers count as infinities, which ranges, histograms and power exclude: in measured noise, in
estimates, in calibration and in comparisons. Quantization saturates them, and the range reaches far enough
down that they still vanish (`reach_below`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.tuned import tuned
from ...profiles.records.histogram import EqualBins
from ...profiles.records.profile import Profile, TensorProfile
from ..model.graph import constant_of
from ..operators.facts import Arithmetic, Classes, Steps, Values
from ..operators.graph import Graph, Node
from ..operators.table import facts_of, is_clip
from .value_paths import holds_values

VANISHING_DISTANCE = 20.0
"""What lies this far below the largest is nothing beside it: exp(-20) is 2e-9."""

FILLER_DEPTH = tuned(
    64.0,
    figure="the shallowest mask in use, of shifted windows, is -100",
    chosen_on="masks of published transformers",
    holds=(51.2, 80.0),
)
"""An element this far below the largest of its row of a Softmax, or of its tensor for an Exp, is a filler."""

MASKED_ROW_DEPTH = tuned(
    1024.0,
    figure=(
        "masks of whole rows have -1e4 and less; largest logits of rows differ by hundreds at "
        "most (DECISIONS.md, 92)"
    ),
    chosen_on="by hand",
)
"""A row whose largest value is this far below that of its tensor contains only fillers."""

Rows = frozenset[tuple[int, ...]]
"""The axes along which readers look for the largest, from the last, which is -1; () for all."""

WHOLE: Rows = frozenset({()})

MAX_FOLLOWED_NODES = 8
"""Most nodes between a mask and the node that turns it into zeros."""

MIN_BINS = 256
"""Bins over `VANISHING_DISTANCE` with which a histogram shows the values beside fillers."""


def reach_below(
    value: ir.Value,
    spread_of: Callable[[ir.Value], float] = lambda value: 0.0,
    longest: int = MAX_FOLLOWED_NODES,
) -> float | None:
    """Return the distance below a tensor's largest element at which fillers vanish; None if they do not.

    It is `VANISHING_DISTANCE`, plus the spread (`spread_of`: largest minus smallest value without fillers) of
    a tensor that is first added to it; at most `longest` nodes are followed.
    """
    if longest == 0 or value.is_graph_output() or not value.uses():
        return None
    reach = VANISHING_DISTANCE
    for use in value.uses():
        node, facts = use.node, facts_of(use.node)
        if facts.ignores_lowest and use.idx == 0:
            continue
        if not _hands_fillers_on(node, use.idx):
            return None
        further = reach_below(node.outputs[0], spread_of, longest - 1)
        if further is None:
            return None
        if facts.arithmetic is not None:
            other = node.inputs[1 - use.idx]
            further += 0.0 if other is None else spread_of(other)
        reach = max(reach, further)
    return reach


def filler_rows(value: ir.Value) -> Rows | None:
    """Return the axes along which readers take the largest value; None if fillers do not vanish."""
    return None if reach_below(value) is None else frozenset(_rows_read(value))


def _rows_read(value: ir.Value) -> Iterator[tuple[int, ...]]:
    for use in value.uses():
        node, facts = use.node, facts_of(use.node)
        if facts.ignores_lowest or facts.classes is Classes.COMPETE:
            yield _row_axes(node)
        else:
            yield from (_axes_before(node, value, axes) for axes in _rows_read(node.outputs[0]))


def _row_axes(node: ir.Node) -> tuple[int, ...]:
    """Return the axes along which a node takes the largest value; () for all, or unknown axes."""
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    axes: tuple[int, ...] = ()
    if "axes" in node.attributes:
        axes = tuple(node.attributes.get_ints("axes", ()))
    elif "axis" in node.attributes or facts_of(node).classes is Classes.COMPETE:
        axes = (node.attributes.get_int("axis", -1),)
    elif len(node.inputs) > 1 and (constant := constant_of(node.inputs[1])) is not None:
        axes = tuple(int(axis) for axis in constant.flat) if constant.dtype.kind == "i" else ()
    if any(axis >= 0 for axis in axes):
        axes = () if shape is None else tuple(a - len(shape) if a >= 0 else a for a in axes)
    return axes


def _axes_before(node: ir.Node, value: ir.Value, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return which axes of an input are some of the first output of a node that hands fillers on."""
    before, after = value.shape, node.outputs[0].shape
    if before is None or after is None or not axes:
        return axes
    if (order := node.attributes.get_ints("perm", ())) and len(order) == len(before):
        return tuple(order[axis] - len(before) for axis in axes)
    inner = min(axes)
    if tuple(before)[inner:] == tuple(after)[inner:]:
        return axes
    # Another shape of the same elements, as of Reshape, has other axes.
    sizes = (math.prod(d if isinstance(d, int) else 0 for d in shape) for shape in (before, after))
    return axes if len(before) == len(after) and len({*sizes}) > 1 else ()


def _hands_fillers_on(node: ir.Node, index: int) -> bool:
    """Whether fillers of an input are fillers in the first output of a node."""
    facts = facts_of(node)
    if facts.picks_by_condition:
        return index > 0
    if facts.arithmetic is Arithmetic.SUM or facts.joins_inputs:
        return True
    if facts.values is Values.CHOSEN and facts.steps is Steps.CANDIDATES:  # TopK
        return index == 0 and bool(node.attributes.get_int("largest", 1))
    logarithm = facts.classes is Classes.COMPETE  # of a Softmax: as far down as what it reads
    passes = facts.moves_values or facts.arithmetic is Arithmetic.DIFFERENCE or logarithm or is_clip(node)
    return index == 0 and passes


def without_fillers(values: npt.NDArray[Any], rows: Rows = WHOLE) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements that are no fillers of a tensor whose fillers vanish.

    Negative infinities are fillers, NaN is not. With several `rows` (`filler_rows`), a filler is one in all
    of them.
    """
    if not values.size:
        return np.ones(values.shape, bool)
    finite = np.where(np.isfinite(values), values, -np.inf)
    top, kept = finite.max(), np.zeros(values.shape, bool)
    for axes in rows:
        inside = tuple(axis for axis in axes if -axis <= values.ndim) or None
        largest = finite.max(axis=inside, keepdims=True)
        is_masked = largest < top - MASKED_ROW_DEPTH
        kept |= ~(values < np.where(is_masked, np.inf, largest - FILLER_DEPTH))
    return kept & ~np.isneginf(values)


def fillers_as_infinities(
    exact: npt.NDArray[Any], other: npt.NDArray[Any], rows: Rows = WHOLE
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a float tensor and another form of it, with minus infinity at the first one's fillers."""
    kept = without_fillers(exact, rows)
    if kept.all():
        return exact, other
    return np.where(kept, exact, -np.inf), np.where(kept, other, -np.inf)


def with_fillers_apart(profile: Profile, graph: Graph) -> Profile:
    """Return the profile with vanishing fillers of tensors counted as infinities."""
    names = [name for name, tensor in profile.items() if name in graph.values and _filler_bins(tensor)]
    vanishing = (n for n in names if filler_rows(graph.values[n]) and _has_mask(n, profile, graph))
    apart = {n: _set_apart(profile[n]) for n in vanishing if not _survive(n, profile, graph)}
    return replace(profile, tensors={**profile.tensors, **apart}) if apart else profile


def _survive(name: str, profile: Profile, graph: Graph) -> bool:
    """Whether a maximum passes on fillers of a tensor, as from rows of fillers only."""
    for node, index in graph.consumers(name):
        chooses = node.facts.ignores_lowest and node.facts.values is Values.CHOSEN
        if chooses and any(r in profile and _filler_bins(profile[r]) for r in node.results):
            return True
        if holds_values(node, index) and any(_survive(r, profile, graph) for r in node.results):
            return True
    return False


def _filler_bins(tensor: TensorProfile) -> int:
    """Return the number of a histogram's bins that contain only fillers: those below a wide gap."""
    counts = tensor.histogram.counts
    if tensor.maximum - tensor.minimum < FILLER_DEPTH or not counts.size:
        return 0
    edges, held = tensor.histogram.edges(), np.flatnonzero(counts)
    ends = edges[held[:-1] + 1]
    is_gap = (edges[held[1:]] - ends >= VANISHING_DISTANCE) & (ends <= tensor.maximum - FILLER_DEPTH)
    return int(held[np.flatnonzero(is_gap)[-1]]) + 1 if is_gap.any() else 0


def _has_mask(name: str, profile: Profile, graph: Graph) -> bool:
    """Whether values below the gap in a tensor's histogram are fillers of masks.

    The histogram has no rows: logits of another row may lie below the gap too. So the values must be farther
    away than such logits, or a mask must lead to the tensor.
    """
    tensor = profile[name]
    if tensor.histogram.edges()[_filler_bins(tensor)] < tensor.maximum - MASKED_ROW_DEPTH:
        return True
    waiting, seen = [name], set[str]()
    while waiting and len(seen) < MAX_FOLLOWED_NODES:
        node = graph.producer(waiting.pop(0))
        if node is None or node.name in seen or (node.rule is not None and node.rule.weight is not None):
            continue
        seen.add(node.name)
        for index, read in enumerate(node.inputs):
            if _is_mask(node, index, profile, graph):
                return True
            if read and not graph.is_constant(read):
                waiting.append(read)
    return False


def _is_mask(node: Node, index: int, profile: Profile, graph: Graph) -> bool:
    """Whether a constant has fillers, or an activation nothing else but zeros."""
    name = node.input(index)
    sign = -1.0 if index == 1 and node.facts.arithmetic is Arithmetic.DIFFERENCE else 1.0
    constant = graph.constant(name)
    if constant is not None:
        is_float = constant.dtype.kind == "f" and constant.size > 0
        return is_float and bool((sign * constant.astype(np.float64)).min() <= -FILLER_DEPTH)
    tensor = profile.get(name)
    if tensor is None or not tensor.zeros:
        return False
    edges = tensor.histogram.edges()
    far = edges[1:] <= -FILLER_DEPTH if sign > 0.0 else edges[:-1] >= FILLER_DEPTH
    return 0 < int(tensor.histogram.counts[far].sum()) == tensor.count - tensor.zeros


def _set_apart(tensor: TensorProfile) -> TensorProfile:
    """Return the profile of a tensor with its fillers among the infinities.

    If fillers made bins too wide, the histogram does not show the other values. These are assumed to be
    evenly distributed over `VANISHING_DISTANCE`; values further below the largest do not matter.
    """
    fillers, zeros = _filler_bins(tensor), tensor.zeros
    counts, edges = tensor.histogram.counts.astype(np.float64), tensor.histogram.edges()
    kept = float(counts[fillers:].sum())
    if zeros == kept:
        minimum, maximum, bins = 0.0, 0.0, EqualBins(0.0, 0.0, np.array([kept]))
    elif edges[1] - edges[0] <= VANISHING_DISTANCE / MIN_BINS:
        minimum, maximum = float(edges[fillers:][np.argmax(counts[fillers:] > 0.0)]), tensor.maximum
        bins = EqualBins(float(edges[fillers]), float(edges[-1]), counts[fillers:])
    else:
        minimum, maximum, zeros = tensor.maximum - VANISHING_DISTANCE, tensor.maximum, 0
        bins = EqualBins(minimum, maximum, np.full(MIN_BINS, kept / MIN_BINS))
    return replace(
        tensor,
        minimum=minimum,
        maximum=maximum,
        count=int(kept),
        zeros=zeros,
        inf=tensor.inf + tensor.count - int(kept),
        histogram=bins,
        channels=None,
    )


def saturating_low(graph: Graph, name: str, tensors: Mapping[str, TensorProfile]) -> float | None:
    """Return the range minimum that still makes a tensor's fillers vanish; None without such fillers."""
    constant = graph.constant(name)
    if constant is None:
        has_fillers, largest = bool(tensors[name].inf), tensors[name].maximum
    else:
        has_fillers = constant.size > 0 and not without_fillers(constant).all()
        largest = float(constant.max()) if has_fillers else 0.0
    if not has_fillers or name not in graph.values:
        return None

    def spread_of(value: ir.Value) -> float:
        array, tensor = constant_of(value), tensors.get(str(value.name))
        if array is not None and array.size:
            kept = array[without_fillers(array)]
            return float(kept.max() - kept.min())
        return 0.0 if tensor is None else tensor.maximum - tensor.minimum

    reach = reach_below(graph.values[name], spread_of)
    return None if reach is None else largest - reach

"""The kind of each output, derived from its operators, its shape and its profile. Pure.

==========  ==================================================================================================
decision    a probability, a class, an order: after Softmax, Sigmoid, ArgMax, TopK, products of these, and
            logits of classes: a row of a matrix product with similar columns
detections  scores, and other numbers of each candidate: boxes, points
embedding   a vector whose direction is compared: normalised, or a mean over places
signal      many values of few channels over time or space: sound, a picture, a map of depth; no heat map
state       an input of the next run: a cache of keys and values, the state of a recurrent network
values      all other outputs: regression, and logits at each place of a map or position of a sequence
==========  ==================================================================================================

It is decided once, from all samples of a profile, which stores it with the reason (`Profile.outputs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

import numpy as np
import onnx_ir as ir

from ...profiles.base.conversion import OutputKind
from ...profiles.base.tuned import tuned
from ...profiles.records.channel_statistics import Channels
from ...profiles.records.profile import DataId, ModelId, OutputMeaning, Profile
from ..numerics.density import cubed, density, mean_of
from ..operators.decompositions import divides_by_norm, softmax_input
from ..operators.facts import Arithmetic, Classes, Meaning, Steps, Sums
from ..operators.graph import Graph, Node
from ..operators.table import product_layout
from ..operators.weight_layout import Kernel
from .class_axes import class_axis_of
from .value_paths import before_move, holds_values, maker_of, nearest_product, parts_of, upstream

NOT_PROFILED = Profile(ModelId("", "", 0), DataId(), {})
"""Nothing is known of any tensor."""

MAX_CHANNELS = tuned(4, figure="pictures and sound have up to four", chosen_on="by hand", holds=(3, 5))
"""Most values at each place of a signal: red, green, blue and opacity; two ears; real and imaginary parts."""

MIN_PLACES = tuned(
    256, figure="a picture of 16 x 16, 16 ms of sound at 16 kHz", chosen_on="by hand", holds=(204, 320)
)
"""Fewest places of a signal."""

MIN_SIDE = tuned(16, figure="a picture of 16 x 16", chosen_on="by hand", holds=(12, 20))
"""Least width and height of a picture."""

UNDECIDED = tuned(
    0.4,
    figure=(
        "0.67 if they are uniform, as brightness nearly is; below 0.2 for a classifier that is "
        "sure in 19 of 20 cases"
    ),
    chosen_on="distributions",
    holds=(0.32, 0.5),
)
"""Mean of 4 p (1 - p) above which the values of a Sigmoid are no decisions."""

PEAKED = tuned(
    4.0,
    figure=(
        "4.1 if a twentieth of the places stand out, 9.8 if a hundredth do; enlarged "
        "pictures have -0.1, dark ones up to 3"
    ),
    chosen_on="distributions, pictures",
    holds=(3.2, 5.0),
)
"""Skewness of a map above which its values are peaks on a flat ground."""

BESIDE_SCORES: tuple[OutputKind, ...] = ("values", "signal")
"""What boxes are by themselves: four numbers for each of many candidates look like channels."""


BOX = 4
"""Columns of a box."""

FEWEST_OF_A_VECTOR, MOST_UNLIKE = 64, 16.0
"""Least columns of an embedding that the graph does not distinguish from numbers of a regression, and the
largest ratio of their deviations, or of those of logits: so many columns are a field, read as one."""

FEWEST_LOGITS = 3
"""Rows that show whether values may be logits."""

NO_FLOATS = {None: "no tensor", ir.DataType.STRING: "strings", ir.DataType.BOOL: "a condition"}
"""Reasons of decisions that are neither floats nor integers."""

ROUNDING = 1e-3
"""By which sums of float32 probabilities may be off 1."""


def output_meanings(graph: Graph, profile: Profile) -> dict[str, OutputMeaning]:
    """Return the kind of each output of a model and the reason, in the order of the outputs."""
    found = {name: _meaning(graph, profile, name) for name in graph.outputs}
    boxes = _boxes(graph, profile, found)
    for name, one in found.items():
        if boxes and one.kind in ("decision", *BESIDE_SCORES):
            reason = "boxes" if name in boxes else f"beside boxes '{boxes[0]}'"
            found[name] = OutputMeaning("detections", one.reason if one.kind == "decision" else reason)
        elif one.kind == "values" and (reason := _classes_reason(graph, profile, name)):
            found[name] = OutputMeaning("decision", reason)
    return found


def tensors_of_kinds(graph: Graph) -> frozenset[str]:
    """Return the activations that decide the kinds of outputs: outputs, and their sources place by place."""
    found: set[str] = set()
    waiting = list(graph.outputs)
    while waiting:
        name = waiting.pop()
        if name in found or graph.is_constant(name) or not graph.is_float(name):
            continue
        found.add(name)
        node = graph.producer(name)
        if node is not None and (
            node.facts.arithmetic is not None
            or (node.rule is not None and (node.rule.unary or node.rule.elementwise))
            or any(holds_values(node, index) for index in range(len(node.inputs)))
        ):
            waiting += [given for given in node.inputs if given]
    return frozenset(found)


def meanings_of(graph: Graph, profile: Profile) -> dict[str, OutputMeaning]:
    """Return the meanings in a profile; those missing, as in older profiles, are decided anew."""
    told = {} if profile.outputs.keys() >= set(graph.outputs) else output_meanings(graph, profile)
    return {name: profile.outputs.get(name) or told[name] for name in graph.outputs}


def makes_magnitudes(graph: Graph, name: str) -> bool:
    """Whether an output's error is proportional to its value: of an exponential, a power, a quotient."""
    return any(_makes_magnitudes(graph, part) for part in parts_of(graph, name))


def _makes_magnitudes(graph: Graph, name: str) -> bool:
    source: str | None = name
    while source is not None:
        node = maker_of(graph, source)
        if node is None:
            return False
        of = node.facts.magnitude_of
        if of is not None and node.input(of) and not graph.is_constant(node.input(of)):
            return True
        source = before_move(graph, node.output) if node.rule is not None and node.rule.is_affine else None
    return False


def drawn_at_random(graph: Graph, name: str) -> bool:
    """Whether an output differs between two runs of the same model."""
    return any(node.facts.random for node in upstream(graph, [name]))


def scores_of_index(graph: Graph, name: str) -> str | None:
    """Return the scores that an output is the index of the largest of, None of any other."""
    node = None if graph.is_float(name) else maker_of(graph, name)
    chooses = node is not None and node.facts.steps in (Steps.EQUAL_VALUES, Steps.CANDIDATES)
    return node.input(0) if node is not None and chooses and graph.is_float(node.input(0)) else None


def _meaning(graph: Graph, profile: Profile, name: str) -> OutputMeaning:
    if reason := _state_reason(graph, profile, name):
        return OutputMeaning("state", reason)
    parts = {part: decision_reason(graph, profile, part) for part in parts_of(graph, name)}
    decided = list(dict.fromkeys(filter(None, parts.values())))
    if decided and not all(parts.values()) and _per_sample(profile, name) >= MAX_CHANNELS:
        return OutputMeaning("detections", f"{decided[0]} beside other columns")
    if all(parts.values()):
        return OutputMeaning("decision", ", ".join(decided[:2]))
    if reason := _embedding_reason(graph, profile, name):
        return OutputMeaning("embedding", reason)
    if _is_signal(graph, profile, name) and not _is_heat_map(graph, profile, name):
        return OutputMeaning("signal", "many places with few channels")
    return OutputMeaning("values", "no rule applies")


def _state_reason(graph: Graph, profile: Profile, name: str) -> str:
    """Return the reason why an output feeds the next run, "" for none."""
    if name in fed_back(profile):
        return "fed to the next run while profiling"
    if is_last_state(graph, name):
        return "last state of a recurrent node"
    parts = parts_of(graph, name)
    inputs = {n for n in graph.inputs if graph.is_float(n)}
    if len(parts) > 1 and inputs & set(parts):
        return "an input with more values beside it" if len(graph.outputs) > 1 else ""
    shape, first = graph.shape(name), graph.outputs[0]
    if not shape or name == first or graph.shape(first) == shape or len(shape) < 2:
        return ""
    alike = (g for g in graph.inputs[1:] if graph.is_float(g) and graph.shape(g) == shape)
    return f"shape of input '{given}'" if (given := next(alike, "")) else ""


def fed_back(profile: Profile) -> frozenset[str]:
    """Return the outputs that inputs were fed with while profiling."""
    return frozenset(given.fed_by for given in profile.inputs.values() if given.fed_by is not None)


def is_last_state(graph: Graph, name: str) -> bool:
    """Whether a tensor is the last state of a recurrent operator."""
    node = graph.producer(name)
    return node is not None and node.rule is not None and node.rule.is_recurrent and node.output != name


def decision_reason(graph: Graph, profile: Profile, name: str) -> str:
    """Return the reason why a tensor has probabilities, classes or an order, "" for none.

    Products, powers, complements, means and choices of probabilities are probabilities, and so are zeros and
    ones among their factors. Results of Sigmoids only may be a picture, by their values.
    """
    reason, may_be_picture = _decided(graph, profile, name)
    node = maker_of(graph, name) if may_be_picture else None
    return "" if node is not None and _is_undecided_map(graph, profile, node.output) else reason


def _decided(graph: Graph, profile: Profile, name: str) -> tuple[str, bool]:
    """Return the reason, and whether each factor may as well be the brightness of a picture."""
    nothing = "", False
    if not graph.is_float(name):
        return NO_FLOATS.get(graph.dtype(name), "integers"), False
    node = maker_of(graph, name)
    if node is None:
        return nothing
    if not graph.is_float(node.output):
        return ("a condition", False) if graph.dtype(node.output) is ir.DataType.BOOL else nothing
    if node.facts.meaning in (Meaning.DECISION, Meaning.DECISION_OR_PICTURE):
        return node.op_type, node.facts.meaning is Meaning.DECISION_OR_PICTURE
    if softmax_input(node, graph):
        return "Softmax", False
    if _is_logarithm(graph, profile, name, node):
        return "logarithm of probabilities", False
    factors = [given for given in node.inputs if given]
    if node.facts.arithmetic is Arithmetic.DIFFERENCE:
        minuend = graph.constant(factors[0])
        return (
            _decided(graph, profile, factors[1]) if minuend is not None and (minuend == 1).all() else nothing
        )
    is_power = node.facts.is_root(node.ir_node, 0) or node.facts.is_power(node.ir_node)
    if is_power or node.facts.meaning is Meaning.MEAN:
        factors = factors[:1]
    elif (parts := parts_of(graph, name)) != (name,):
        factors = list(parts)
    elif node.facts.arithmetic is not Arithmetic.PRODUCT:
        factors = [given for index, given in enumerate(node.inputs) if given and holds_values(node, index)]
    found: list[tuple[str, bool]] = []
    for given in factors:
        if not _is_mask(graph, given):
            found.append(_decided(graph, profile, given))
            if not found[-1][0]:
                return nothing
    if not found:
        return nothing
    several = node.facts.arithmetic is Arithmetic.PRODUCT and len(found) > 1
    reasons = [reason.removeprefix("product of ") for reason, _ in found]
    reason = f"product of {' and '.join(reasons)}" if several else found[0][0]
    return reason, all(may_be_picture for _, may_be_picture in found)


def is_decision(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether a tensor has probabilities, classes or an order."""
    return bool(decision_reason(graph, profile, name))


def _is_mask(graph: Graph, name: str) -> bool:
    """Whether a tensor is a constant of zeros and ones."""
    values = graph.constant(name)
    return values is not None and bool(np.isin(values, (0, 1)).all())


def _is_logarithm(graph: Graph, profile: Profile, name: str, node: Node) -> bool:
    """Whether a tensor without values above 0 is the logarithm of probabilities, or a sum of such."""
    seen = profile.get(name)
    if seen is not None and seen.count and seen.maximum > ROUNDING:
        return False
    waiting, visited = [node], set[Node]()
    while waiting:
        term = waiting.pop()
        if term in visited:
            continue
        visited.add(term)
        if term.facts.arithmetic in (Arithmetic.SUM, Arithmetic.DIFFERENCE):
            makers = (maker_of(graph, given) for given in term.inputs)
            waiting += [maker for maker in makers if maker is not None]
        elif term.facts.sums is Sums.SHIFTED or term.facts.classes is Classes.COMPETE:
            return term is not node
        elif len(term.inputs) == 1 and term.facts.singular(term.ir_node, 0):
            return bool(decision_reason(graph, profile, term.input(0)))
    return False


def _is_undecided_map(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether a Sigmoid makes a picture: a map of few channels whose values are mostly between 0 and 1."""
    tensor = profile.get(name)
    if tensor is None or not tensor.histogram.total or not _is_map(tensor.shape, _per_sample(profile, name)):
        return False
    return mean_of(density(tensor), lambda p: 4.0 * p * (1.0 - p)) >= UNDECIDED


def _embedding_reason(graph: Graph, profile: Profile, name: str) -> str:
    node = maker_of(graph, name)
    if node is None:
        return ""
    if node.facts.meaning is Meaning.DIRECTION or divides_by_norm(node, graph):
        return f"normalised by {node.op_type}"
    shape = graph.shape(name)
    flat = shape is not None and sum(dim != 1 for dim in shape[1:]) == 1
    is_mean = node.facts.meaning is Meaning.MEAN and flat and _per_sample(profile, name) > MAX_CHANNELS
    return f"a vector by {node.op_type}" if is_mean else ""


# Columns -------------------------------------------------------------------------------------------------


def column_axes(graph: Graph) -> dict[str, int]:
    """Return the axis of an output's columns that a profile records: of boxes, beside scores, of classes."""
    axes: dict[str, int] = {}
    for name in graph.outputs:
        shape = graph.shape(name) if graph.is_float(name) and not graph.is_constant(name) else None
        if shape is None or len(shape) < 2:
            continue
        reasons = {bool(decision_reason(graph, NOT_PROFILED, part)) for part in parts_of(graph, name)}
        axis = class_axis_of(graph.values[name])
        if shape[-1] == BOX or (len(shape) == 2 and axis.is_answer):
            at = len(shape) - 1 if shape[-1] == BOX else axis.axis_in(tuple(dim or 0 for dim in shape))
        elif len(reasons) == 2:
            sized = [(dim, at) for at, dim in ((len(shape) - 1, shape[-1]), (1, shape[1])) if dim is not None]
            at = min(sized)[1] if sized else None
        else:
            at = next(iter(_box_axes(shape)), None)
        if at is not None and shape[at] is not None:
            axes[name] = at
    return axes


def _classes_reason(graph: Graph, profile: Profile, name: str) -> str:
    """Return the reason why a row may be logits of classes, "" for none.

    A matrix product makes its columns, which vary alike, and not always the same one is the largest by far.
    """
    axis = class_axis_of(graph.values[name])
    shape = graph.shape(name)
    if not axis.is_answer or shape is None or axis.axis_in(tuple(dim or 2 for dim in shape)) is None:
        return ""
    columns = None if name not in profile else profile[name].channels
    if columns is None or int(columns.count.min()) < FEWEST_LOGITS:
        return "a row of a matrix product, taken for logits of classes: few samples support another kind"
    if columns.count.size < FEWEST_OF_A_VECTOR and vary_unlike(columns):
        return ""
    winner = int(columns.maximum.argmax())
    behind = float(columns.minimum[winner] - np.delete(columns.maximum, winner).max())
    varies = (columns.maximum > columns.minimum).any()
    if varies and behind > -log(ROUNDING):
        return ""
    return "a row of a matrix product whose columns vary alike, taken for logits of classes"


def vary_unlike(columns: Channels, which: slice = slice(None)) -> bool:
    """Whether those columns that vary do so by far not alike: they are in units of their own."""
    scales = np.sqrt(np.maximum(columns.power - columns.mean**2, 0.0))
    scales = scales[which][(columns.maximum > columns.minimum)[which]]
    return bool(scales.size and scales.max() > MOST_UNLIKE * scales.min())


# Signals -------------------------------------------------------------------------------------------------


def matrix_columns(graph: Graph, name: str) -> int | None:
    """Return the axis along which a matrix product makes the columns of an output; None for other outputs."""
    node = nearest_product(graph, name)
    layout = None if node is None else product_layout(node)
    is_matrix = layout is not None and layout.kernel is Kernel.NONE
    return class_axis_of(graph.values[name]).axis if is_matrix else None


def has_places(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output has values at each place of a map or position of a sequence, read together."""
    shape = profile[name].shape if name in profile else graph.shape(name)
    if shape is None or len(shape) < 3:
        return any(dim is None for dim in (shape or ())[1:])
    columns = matrix_columns(graph, name)
    if columns is not None and len(shape) == 3:  # batch first, or time first
        first = int(shape[1] != 1 or columns % 3 == 1)
        places = [dim for axis, dim in enumerate(shape) if axis >= first and axis != columns % 3]
        return any(dim is None or dim >= MIN_SIDE for dim in places)
    return len(shape) > 3 or any(dim is None or dim >= MIN_SIDE for dim in shape[1:])


def _is_heat_map(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether a map of convolutions over two axes has peaks on a flat ground, as pictures do not."""
    tensor, node = profile.get(name), nearest_product(graph, name)
    weight = None if node is None else node.constant(1)
    if tensor is None or not tensor.histogram.total or weight is None or weight.ndim != 4:
        return False
    values = density(tensor)
    mean = mean_of(values, lambda x: x)
    deviation = mean_of(values, lambda x: (x - mean) ** 2) ** 0.5
    return bool(deviation > 0.0 and mean_of(values, lambda x: cubed(x - mean)) > PEAKED * deviation**3)


def _is_signal(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output has the shape of a signal, or of an input that has, perhaps before a flattening."""
    elements = _per_sample(profile, name)
    own = profile[name].shape if name in profile else graph.shape(name)
    columns = matrix_columns(graph, name)
    if columns is not None and own is not None and (len(own) < 4 or columns % len(own) == 1):
        return False
    if _is_map(own, elements) or (_is_map_like_input(graph, profile, name) and elements >= MIN_PLACES):
        return True
    source = before_move(graph, name)
    while source is not None:
        if source in profile and elements >= MIN_PLACES and _is_map(profile[source].shape, elements):
            return True
        source = before_move(graph, source)
    return False


def _is_map(shape: tuple[int | None, ...] | None, elements: float) -> bool:
    """Whether a shape has places and at most a few channels: [N, C, ...] or [N, ..., C]."""
    if shape is None or len(shape) < 3:
        return False
    side = MIN_SIDE if len(shape) > 3 else MIN_PLACES
    for channels, places in ((shape[1], shape[2:]), (shape[-1], shape[1:-1])):
        wide = all(dim is None or dim >= side for dim in places)
        if wide and channels is not None and channels <= MAX_CHANNELS and elements >= MIN_PLACES * channels:
            return True
    return False


def _is_map_like_input(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output of three dimensions or more has the shape of an input, and convolutions make it."""
    shape, node = graph.shape(name), nearest_product(graph, name)
    layout = None if node is None else product_layout(node)
    if shape is None or len(shape) < 3 or layout is None or layout.data_axis == -1:  # of a MatMul
        return False
    if len(shape) > 3 and any(dim is not None and dim < MIN_SIDE for dim in shape[2:]):
        return False
    for given in graph.inputs:
        other = profile[given].shape if given in profile else graph.shape(given)
        own = profile[name].shape if name in profile else shape
        if graph.is_float(given) and other is not None and own is not None and other[1:] == own[1:]:
            return True
    return False


def _boxes(graph: Graph, profile: Profile, found: Mapping[str, OutputMeaning]) -> list[str]:
    """Return the outputs that have four numbers alike for each candidate that another output decides on."""
    shapes = {name: profile[name].shape if name in profile else graph.shape(name) for name in found}
    deciding = [shape for name, shape in shapes.items() if found[name].kind == "decision" and shape]
    boxes = []
    for name, shape in shapes.items():
        if found[name].kind not in BESIDE_SCORES or not shape or _is_map_like_input(graph, profile, name):
            continue
        columns = None if name not in profile else profile[name].channels
        if (
            columns is not None
            and columns.count.size == BOX
            and any(vary_unlike(columns, pair) for pair in (slice(0, 2), slice(2, 4)))
        ):
            continue  # four quantities beside a decision: of a box, two ends or both sizes vary alike
        candidates = [shape[:axis] + shape[axis + 1 :] for axis in _box_axes(shape)]
        if any(_decides_on(other, each) for other in deciding for each in candidates):
            boxes.append(name)
    return boxes


def _box_axes(shape: tuple[int | None, ...]) -> list[int]:
    """Return the axes that may hold the numbers of a box: the last one, and the one after the batch."""
    return [
        axis for axis in dict.fromkeys((len(shape) - 1, 1)) if 0 < axis < len(shape) and shape[axis] == BOX
    ]


def _decides_on(scores: tuple[int | None, ...], candidates: tuple[int | None, ...]) -> bool:
    """Whether scores are of these candidates, batch first, with their classes before or after them."""
    size = len(candidates)
    return scores[:size] == candidates or (
        scores[:1] == candidates[:1] and scores[2 : size + 1] == candidates[1:]
    )


def _per_sample(profile: Profile, name: str) -> float:
    """Return the mean number of a tensor's elements in one sample; 0 without a profile."""
    tensor = profile.get(name)
    return 0.0 if tensor is None else tensor.count / max(profile.data.samples, 1)

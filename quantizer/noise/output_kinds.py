"""What each output of a model is: told from the operators that make it, its shape and its profile. Pure.

==========  ==================================================================================================
decision    a probability, a class, an order: behind Softmax, Sigmoid, ArgMax, TopK; few of its digits matter
detections  scores, and numbers beside them for each candidate: the boxes, the points
embedding   a vector whose direction is compared: normalised, or a mean over places
signal      many values of few channels over time or space: sound, a picture, a map of depth; no heat map
state       what is given back in the next run: a cache of keys and values, the state of a recurrent network
values      all else: numbers of a regression, logits, and vectors that nothing tells from these
==========  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

from ...profiles.base.tuned import tuned
from ...profiles.records.profile import Profile
from ..numerics.density import cubed, density, mean_of
from ..operators.decompositions import divides_by_norm, softmax_input
from ..operators.facts import Meaning, Steps
from ..operators.graph import Graph
from ..operators.table import product_layout
from ..targets.config import OutputKind
from .value_paths import before_move, maker_of, nearest_product, parts_of, upstream

MAX_CHANNELS = tuned(
    4,
    figure="pictures and sound have up to four",
    chosen_on="by hand",
    holds=(3, 5),
)
"""Most values at each place of a signal: red, green, blue and opacity; two ears; real and imaginary parts.
Maps of more, such as logits of classes, are no signals by their shape."""

MIN_PLACES = tuned(
    256,
    figure="a picture of 16 x 16, 16 ms of sound at 16 kHz",
    chosen_on="by hand",
    holds=(204, 320),
)
"""Fewest places of a signal."""

MIN_SIDE = tuned(
    16,
    figure="a picture of 16 x 16",
    chosen_on="by hand",
    holds=(12, 20),
)
"""Least width and height of a picture."""

UNDECIDED = tuned(
    0.4,
    figure=(
        "0.67 where they are uniform, as brightness nearly is; below 0.2 for a classifier that is "
        "sure in 19 of 20 cases"
    ),
    chosen_on="distributions",
    holds=(0.32, 0.5),
)
"""Mean of 4 p (1 - p) above which the values of a Sigmoid are no decisions."""

PEAKED = tuned(
    4.0,
    figure=(
        "4.1 where a twentieth of the places stand out, 9.8 where a hundredth do; enlarged "
        "pictures have -0.1, dark ones up to 3"
    ),
    chosen_on="distributions, pictures",
    holds=(3.2, 5.0),
)
"""Skewness of a map above which its values are peaks on a flat ground."""

BESIDE_SCORES: tuple[OutputKind, ...] = ("values", "signal")
"""What boxes are by themselves: four numbers for each of many candidates look like channels."""


def output_kinds(graph: Graph, profile: Profile) -> dict[str, OutputKind]:
    """Return the kind of each output of a model, in the order of the outputs.

    Args:
        graph: of the prepared model.
        profile: of its activations: shapes, numbers of elements and densities.
    """
    kinds = {name: _kind(graph, profile, name) for name in graph.outputs}
    if _has_boxes(graph, profile, kinds):
        kinds = {n: "detections" if k in ("decision", *BESIDE_SCORES) else k for n, k in kinds.items()}
    return kinds


def makes_magnitudes(graph: Graph, name: str) -> bool:
    """Whether an error of an output is in proportion to its value: it ends in an exponential, a power of a
    constant, or a quotient, before what moves, clips, scales or shifts its values."""
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


def _kind(graph: Graph, profile: Profile, name: str) -> OutputKind:
    if _is_state(graph, profile, name):
        return "state"
    decides = {is_decision(graph, profile, part) for part in parts_of(graph, name)}
    if len(decides) == 2 and _per_sample(profile, name) >= MAX_CHANNELS:
        return "detections"
    if decides == {True}:
        return "decision"
    if _is_embedding(graph, profile, name):
        return "embedding"
    if _is_signal(graph, profile, name) and not _is_heat_map(graph, profile, name):
        return "signal"
    return "values"


def _is_state(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output is there to be given back: it was while profiling, or is the state of a recurrent
    operator, or values of an input with more beside them, or of the shape of an input that is not the first,
    as no other result is."""
    if name in fed_back(profile) or is_last_state(graph, name):
        return True
    parts = parts_of(graph, name)
    inputs = {n for n in graph.inputs if graph.is_float(n)}
    if len(parts) > 1 and inputs & set(parts):
        return len(graph.outputs) > 1
    shape, first = graph.shape(name), graph.outputs[0]
    if not shape or name == first or graph.shape(first) == shape or len(shape) < 2:
        return False
    return any(graph.shape(given) == shape for given in graph.inputs[1:] if graph.is_float(given))


def fed_back(profile: Profile) -> frozenset[str]:
    """Return the outputs that inputs were fed with while profiling."""
    return frozenset(given.fed_by for given in profile.inputs.values() if given.fed_by is not None)


def is_last_state(graph: Graph, name: str) -> bool:
    """Whether a tensor is the last state of a recurrent operator."""
    node = graph.producer(name)
    return node is not None and node.rule is not None and node.rule.is_recurrent and node.output != name


def is_decision(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether a tensor holds probabilities, classes or an order."""
    if not graph.is_float(name):
        return True
    node = maker_of(graph, name)
    if node is None:
        return False
    if node.facts.meaning is Meaning.DECISION_OR_PICTURE:
        return not _is_undecided_map(graph, profile, node.output)
    return node.facts.meaning is Meaning.DECISION or bool(softmax_input(node, graph))


def _is_undecided_map(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether a Sigmoid makes a picture: a map of few channels whose values are mostly between 0 and 1."""
    tensor = profile.get(name)
    if tensor is None or not tensor.histogram.total or not _is_map(tensor.shape, _per_sample(profile, name)):
        return False
    return mean_of(density(tensor), lambda p: 4.0 * p * (1.0 - p)) >= UNDECIDED


def _is_embedding(graph: Graph, profile: Profile, name: str) -> bool:
    node = maker_of(graph, name)
    if node is None:
        return False
    if node.facts.meaning is Meaning.DIRECTION or divides_by_norm(node, graph):
        return True
    shape = graph.shape(name)
    flat = shape is not None and sum(dim != 1 for dim in shape[1:]) == 1
    return node.facts.meaning is Meaning.MEAN and flat and _per_sample(profile, name) > MAX_CHANNELS


def has_places(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output has values at each place of a map or position of a sequence, which are read together,
    at their peaks, or by the largest; there are as many as the model leaves free, or many of them."""
    shape = profile[name].shape if name in profile else graph.shape(name)
    if shape is None or len(shape) < 3:
        return any(dim is None for dim in (shape or ())[1:])
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
    """Whether an output has the shape of one, or of an input that has; or was one before it was flattened."""
    elements = _per_sample(profile, name)
    own = profile[name].shape if name in profile else graph.shape(name)
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
    """Whether an output of three dimensions and more has the shape of an input, and convolutions make it:
    the features of each place that a transformer makes have the shape of its input too."""
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


def _has_boxes(graph: Graph, profile: Profile, kinds: Mapping[str, OutputKind]) -> bool:
    """Whether one output decides for each candidate, and another one has four numbers for each."""
    shapes = {name: profile[name].shape if name in profile else graph.shape(name) for name in kinds}
    deciding = [shape for name, shape in shapes.items() if kinds[name] == "decision" and shape]
    for name, shape in shapes.items():
        if kinds[name] not in BESIDE_SCORES or not shape or len(shape) < 2 or shape[-1] != 4:
            continue
        if any(len(other) >= len(shape) - 1 and other[: len(shape) - 1] == shape[:-1] for other in deciding):
            return True
    return False


def _per_sample(profile: Profile, name: str) -> float:
    """Return how many elements a tensor has in one sample, on average; 0 where it was not profiled."""
    tensor = profile.get(name)
    return 0.0 if tensor is None else tensor.count / max(profile.data.samples, 1)

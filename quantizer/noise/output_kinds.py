"""What each output of a model is: told from the operators that make it, its shape and its profile. Pure.

==========  ==================================================================================================
decision    a probability, a class, an order: behind Softmax, Sigmoid, ArgMax, TopK; few of its digits matter
detections  scores, and numbers beside them for each candidate: the boxes, the points
embedding   a vector whose direction is compared: normalised, or a mean over places
signal      many values of few channels over time or space: sound, a picture, a map of depth
state       what is given back in the next run: a cache of keys and values, the state of a recurrent network
values      all else: numbers of a regression, logits, and vectors that nothing tells from these
==========  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...profiles.records.profile import Profile
from ..numerics.density import density, mean_of
from ..operators.graph import Graph, Node
from ..operators.table import PRODUCTS, Constraint, is_clip
from ..targets.config import OutputKind

# Ways through a graph on which values stay what they are: moved, joined, clipped, or resized. Pure.

SELECTING = ("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "TopK", "Compress")
"""Operators that keep values and choose which by the values themselves."""


def moves_values(node: Node) -> bool:
    """Whether the first output holds values of the first input as they are, at places fixed beforehand."""
    rule = node.rule
    if node.op_type in ("Identity", "Dropout", "Cast"):
        return True
    return rule is not None and rule.constraint is Constraint.SAME and node.op_type not in SELECTING


def maker_of(graph: Graph, name: str) -> Node | None:
    """Return the node that computes the values of a tensor, before what only moves or clips them."""
    node = graph.producer(name)
    while node is not None and (moves_values(node) or is_clip(node)):
        node = graph.producer(node.input(0))
    return node


def before_move(graph: Graph, name: str) -> str | None:
    """Return the one activation that a tensor is made of place by place: moved, clipped, or each value by
    itself with constants; None where it is computed from several or otherwise."""
    node = graph.producer(name)
    rule = None if node is None else node.rule
    if node is None or not (moves_values(node) or (rule is not None and (rule.unary or rule.elementwise))):
        return None
    names = {n for n in node.inputs if n and not graph.is_constant(n) and graph.is_float(n)}
    return names.pop() if len(names) == 1 else None


def parts_of(graph: Graph, name: str) -> tuple[str, ...]:
    """Return the tensors that a tensor is put together from by Concat, in its order; itself where it is
    not."""
    found: dict[str, None] = {}
    waiting, seen = [name], set()
    while waiting:
        part = waiting.pop(0)
        if part in seen:
            continue
        seen.add(part)
        node = graph.producer(part)
        if node is not None and node.op_type == "Concat":
            waiting = [*(n for n in node.inputs if n), *waiting]
        elif node is not None and moves_values(node):
            waiting = [node.input(0), *waiting]
        else:
            found[part] = None
    return tuple(found)


def upstream(graph: Graph, names: Iterable[str]) -> Iterator[Node]:
    """Yield the nodes that tensors depend on, each once, the nearest first."""
    waiting, seen = list(names), set()
    while waiting:
        node = graph.producer(waiting.pop(0))
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [name for name in node.inputs if name]


def nearest_product(graph: Graph, name: str) -> Node | None:
    """Return the convolution or matrix product that is nearest before a tensor, None where none is."""
    return next((node for node in upstream(graph, [name]) if node.op_type in PRODUCTS), None)


def downstream(graph: Graph, names: Iterable[str]) -> Iterator[tuple[Node, int]]:
    """Yield the uses of tensors and of what is made of them, each once, the nearest first."""
    waiting, seen = list(names), set()
    while waiting:
        for node, index in graph.consumers(waiting.pop(0)):
            if (node, index) not in seen:
                seen.add((node, index))
                yield node, index
                waiting += [name for name in node.outputs if name]


# Values inside a graph that become steps: rounded to whole numbers, compared, or used to choose. Pure.
#
# A step makes a small error large: a duration of 3.01 frames that becomes 2.99 is a frame less, and all
# that
# follows is moved by it. So noise is held low where steps are made inside of a network, as if the tensor
# were
# an output. A step at the end, an ArgMax or a threshold on what is returned, is a decision of the output;
# steps
# of what is no activation, as lengths and masks that come from inputs alone, have no noise.

ROUNDING = ("Ceil", "Floor", "Round")
"""Operators whose steps are 1 wide; so is that of Cast to integers."""

COMPARING = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "NonZero", "ArgMax", "ArgMin")
"""Operators whose steps are where two values are equal, or one is 0."""

CHOOSING = ("TopK", "NonMaxSuppression", "Hardmax", "Unique", "Mod", "OneHot")
"""Operators whose results jump as well, from one candidate to another of nearly the same value."""

SIZES = ("Range", "ConstantOfShape", "Expand", "Tile", "Resize", "Pad", "Slice", "RandomNormal", "Upsample")
"""Operators of which an integer input says how much there is of their result."""


@dataclass(frozen=True)
class Step:
    """A tensor whose values become steps inside a network.

    Attributes:
        tensor: its name.
        node: the node that makes steps of it.
        operator: of that node.
        width: of the steps, where they are known; None where they are where two values are equal.
        chooses: whether it chooses from candidates, so that what it takes in error is nearly as good.
    """

    tensor: str
    node: str
    operator: str
    width: float | None
    chooses: bool


def find_steps(graph: Graph) -> tuple[Step, ...]:
    """Return the tensors whose values become steps inside a network, in graph order."""
    found: dict[str, Step] = {}
    for node in graph.nodes:
        width = 1.0 if _rounds(node, graph) else None
        if width is None and node.op_type not in (*COMPARING, *CHOOSING):
            continue
        if not _matters(node, graph) or _is_continuous(node, graph):
            continue
        for name in node.inputs:
            if name and graph.is_float(name) and _is_computed(name, graph):
                step = Step(name, node.name, node.op_type, width, node.op_type in CHOOSING)
                found.setdefault(name, step)
    return tuple(found.values())


def _rounds(node: Node, graph: Graph) -> bool:
    if node.op_type != "Cast":
        return node.op_type in ROUNDING
    target = graph.dtype(node.output) if node.output else None
    source = node.input(0)
    return target is not None and target.is_integer() and bool(source) and graph.is_float(source)


def _is_computed(name: str, graph: Graph) -> bool:
    """Whether weights have a part in a tensor; what comes of inputs and constants alone is exact."""
    return any((rule := node.rule) is not None and rule.constants for node in upstream(graph, [name]))


def _is_continuous(node: Node, graph: Graph) -> bool:
    """Whether a step is made up for: x - Floor(x) goes on beside Floor(x), as in interpolation, or a
    comparison chooses between functions of the value that is compared, as in a written-out LeakyRelu."""
    names = set(node.outputs)
    sources = {n for n in node.inputs if n and not graph.is_constant(n)}
    readers = [reader for name in names for reader, _ in graph.consumers(name)]
    if any(r.op_type == "Sub" and sources & set(r.inputs) for r in readers):
        return True
    if len(sources) != 1 or not readers or any(reader.op_type != "Where" for reader in readers):
        return False
    return all(_depends_on(n, sources, graph) for r in readers for n in r.inputs[1:])


def _depends_on(name: str, sources: set[str], graph: Graph) -> bool:
    """Whether a tensor is a function of one of some tensors, or a constant."""
    source: str | None = name
    while source is not None and source not in sources and not graph.is_constant(source):
        source = before_move(graph, source)
    return source is not None


def _matters(node: Node, graph: Graph) -> bool:
    """Whether a step decides what the network computes next, or how much: a product or a size follows."""
    for reader, index in downstream(graph, [name for name in node.outputs if name]):
        rule = reader.rule
        if rule is not None and (rule.is_recurrent or (rule.weight is not None and rule.weight.is_product)):
            return True
        if reader.op_type in SIZES and not graph.is_float(reader.input(index)):
            return True
    return False


def before_steps(graph: Graph, steps: tuple[Step, ...]) -> dict[str, Step]:
    """Return the nodes that lead to steps, back to the last that have weights, each with its step.

    They stay float: with 256 values, many of what is compared are equal, and the first of these would be
    chosen each time; and what is rounded last is rounded next to the edges of the steps.
    """
    found: dict[str, Step] = {}
    for step in steps:
        for node in _back_to_weights(graph, step.tensor):
            found.setdefault(node.name, step)
    return found


def _back_to_weights(graph: Graph, name: str) -> Iterator[Node]:
    waiting, seen = [name], set()
    while waiting:
        node = graph.producer(waiting.pop(0))
        if node is None or node in seen:
            continue
        seen.add(node)
        rule = node.rule
        yield node
        if rule is None or not (rule.is_recurrent or rule.is_lookup or rule.weight is not None):
            waiting += [n for n in node.inputs if n and graph.is_float(n)]


DECIDING = ("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Hardmax", "ArgMax", "ArgMin", "TopK")
"""Operators whose results are compared with each other or with a threshold."""

CHANNELS = 4
"""Most values at each place of a signal: red, green, blue and opacity; two ears; real and imaginary parts.
Maps of more, such as logits of classes, are no signals by their shape."""

PLACES = 256
"""Fewest places of a signal: a picture of 16 x 16, 16 ms of sound at 16 kHz."""

SIDE = 16
"""Least width and height of a picture."""

UNDECIDED = 0.4
"""Mean of 4 p (1 - p) above which the values of a Sigmoid are no decisions. It is 0.67 where they are
uniform, as brightness nearly is, and below 0.2 for a classifier that is sure in 19 of 20 cases."""

BESIDE: tuple[OutputKind, ...] = ("values", "signal")
"""What boxes are by themselves: four numbers for each of many candidates look like channels."""

SHORT = 6
"""Operators back from a division in which its divisor must be found to be a norm or a number of elements."""


def output_kinds(graph: Graph, profile: Profile) -> dict[str, OutputKind]:
    """Return the kind of each output of a model, in the order of the outputs.

    Args:
        graph: of the prepared model.
        profile: of its activations: shapes, numbers of elements and densities.
    """
    kinds = {name: _kind(graph, profile, name) for name in graph.outputs}
    if _has_boxes(graph, profile, kinds):
        kinds = {n: "detections" if k in ("decision", *BESIDE) else k for n, k in kinds.items()}
    return kinds


def _kind(graph: Graph, profile: Profile, name: str) -> OutputKind:
    if _is_state(graph, profile, name):
        return "state"
    decides = {is_decision(graph, profile, part) for part in parts_of(graph, name)}
    if len(decides) == 2 and _per_sample(profile, name) >= CHANNELS:
        return "detections"
    if decides == {True}:
        return "decision"
    if _is_embedding(graph, profile, name):
        return "embedding"
    return "signal" if _is_signal(graph, profile, name) else "values"


def _is_state(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output is there to be given back: the state of a recurrent operator, or values of an input
    with more beside them, or of the shape of an input that is not the first, as no other result is."""
    node = graph.producer(name)
    rule = None if node is None else node.rule
    if rule is not None and rule.is_recurrent and node is not None and node.output != name:
        return True
    parts = parts_of(graph, name)
    inputs = {n for n in graph.inputs if graph.is_float(n)}
    if len(parts) > 1 and inputs & set(parts):
        return len(graph.outputs) > 1
    shape, first = graph.shape(name), graph.outputs[0]
    if not shape or name == first or graph.shape(first) == shape or len(shape) < 2:
        return False
    return any(graph.shape(given) == shape for given in graph.inputs[1:] if graph.is_float(given))


def is_decision(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether a tensor holds probabilities, classes or an order."""
    if not graph.is_float(name):
        return True
    node = maker_of(graph, name)
    if node is None:
        return False
    if node.op_type == "Div" and _follows(graph, node.input(0), ("Exp",), 1):
        return True  # a Softmax that is written out
    if node.op_type not in DECIDING:
        return False
    return node.op_type != "Sigmoid" or not _is_undecided_map(graph, profile, node.output)


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
    if node.op_type in ("LpNormalization", "LayerNormalization"):
        return True
    if node.op_type == "Div" and _follows(graph, node.input(1), ("ReduceL2", "ReduceSum", "Sqrt"), SHORT):
        return True
    means = node.op_type in ("ReduceMean", "GlobalAveragePool", "GlobalMaxPool")
    shape = graph.shape(name)
    flat = shape is not None and sum(dim != 1 for dim in shape[1:]) == 1
    return means and flat and _per_sample(profile, name) > CHANNELS


def _follows(graph: Graph, name: str, op_types: tuple[str, ...], steps: int) -> bool:
    """Whether an operator of these types is at most some steps before a tensor."""
    node = graph.producer(name)
    for _ in range(steps):
        if node is None:
            return False
        if node.op_type in op_types:
            return True
        node = graph.producer(node.input(0))
    return False


def _is_signal(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output has the shape of one, or of an input that has; or was one before it was flattened."""
    elements = _per_sample(profile, name)
    own = profile[name].shape if name in profile else graph.shape(name)
    if _is_map(own, elements) or (_is_map_like_input(graph, profile, name) and elements >= PLACES):
        return True
    source = before_move(graph, name)
    while source is not None:
        if source in profile and elements >= PLACES and _is_map(profile[source].shape, elements):
            return True
        source = before_move(graph, source)
    return False


def _is_map(shape: tuple[int | None, ...] | None, elements: float) -> bool:
    """Whether a shape has places and at most a few channels: [N, C, ...] or [N, ..., C]."""
    if shape is None or len(shape) < 3:
        return False
    side = SIDE if len(shape) > 3 else PLACES
    for channels, places in ((shape[1], shape[2:]), (shape[-1], shape[1:-1])):
        wide = all(dim is None or dim >= side for dim in places)
        if wide and channels is not None and channels <= CHANNELS and elements >= PLACES * channels:
            return True
    return False


def _is_map_like_input(graph: Graph, profile: Profile, name: str) -> bool:
    """Whether an output of three dimensions and more has the shape of an input, and convolutions make it:
    the features of each place that a transformer makes have the shape of its input too."""
    shape, node = graph.shape(name), nearest_product(graph, name)
    if shape is None or len(shape) < 3 or node is None or node.op_type == "MatMul":
        return False
    if len(shape) > 3 and any(dim is not None and dim < SIDE for dim in shape[2:]):
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
        if kinds[name] not in BESIDE or not shape or len(shape) < 2 or shape[-1] != 4:
            continue
        if any(len(other) >= len(shape) - 1 and other[: len(shape) - 1] == shape[:-1] for other in deciding):
            return True
    return False


def _per_sample(profile: Profile, name: str) -> float:
    """Return how many elements a tensor has in one sample, on average; 0 where it was not profiled."""
    tensor = profile.get(name)
    return 0.0 if tensor is None else tensor.count / max(profile.data.samples, 1)

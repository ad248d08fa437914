"""Model + profile + recipe -> plan. Pure: no data is run and nothing is written."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import onnx_ir as ir

from ..profiles.profile import ModelId, Profile
from .affine import TYPES, QuantParams, QuantType, unsigned_twin
from .behind import curve_behind
from .calibrators import Range, calibrate
from .candidates import Choice, Limits, activation_names, outputs_of
from .config import DATA_FREE, QuantConfig
from .curves import Curve
from .graph import Graph
from .groups import find_groups
from .hybrid import all_float, find_hybrids, with_limit
from .noise_budget import Known, UsefulRange, quiet_plan
from .plan import ON_CODES, Group, Kind, NodePlan, QuantPlan
from .rules import Constraint, Rule, rule_of
from .schemes import SCHEMES, bias_params, channel_params, choose_params, weight_for_bias
from .seen import as_seen
from .selection import select
from .targets import Recipe
from .wide import judge_noise, wide_note, wide_type


def make_plan(
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    model: ModelId,
    notes: tuple[str, ...] = (),
    *,
    start_everywhere: bool = False,
    fixed: Mapping[str, str] | None = None,
) -> QuantPlan:
    """Decide everything about one model.

    Args:
        graph: the prepared model.
        profile: its profile, bound to its tensor names.
        recipe: what was asked for and what the runtime can execute.
        model: identity of the prepared model.
        notes: remarks of earlier steps that the user should see.
        start_everywhere: let integers start at light operators too, whatever their neighbours are.
        fixed: nodes that stay float whatever was asked for, each with the reason.

    Raises:
        ConfigError: the settings name something that the model does not have.
    """
    config, profile = with_limit(recipe.config), as_seen(profile, graph)

    spans = _spans(graph, profile, recipe, model.opset)

    def make(loud: Mapping[str, str]) -> QuantPlan:
        floats = {**loud, **(fixed or {})}
        plan = _plan(graph, profile, recipe, floats, spans, start_everywhere=start_everywhere)
        return replace(plan, model=model, notes=(*notes, *plan.notes))

    known = Known(graph, profile, spans.useful)
    return quiet_plan(make, known, config.min_output_sqnr, model.opset)


def _plan(
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    loud: Mapping[str, str],
    spans: _Spans,
    *,
    start_everywhere: bool,
) -> QuantPlan:
    """Make the plan in which the `loud` nodes stay float; its model is left open."""
    config = with_limit(recipe.config)
    notes: tuple[str, ...] = ()
    found: Mapping[str, Range] = {} if config.mode in DATA_FREE else spans.ranges
    noisy, wide = judge_noise(
        graph,
        profile,
        found,
        config,
        recipe.target,
        in_16_bits=partial(_range, qtype=wide_type(config), graph=graph, profile=profile, recipe=recipe),
        useful=spans.useful,
    )
    ranges = ChainMap(wide, found)  # type: ignore[arg-type]  # it is only read
    limits = Limits(profile, recipe.target, config.tables, config.keep_float, config.propagation, noisy, loud)
    if config.mode in DATA_FREE:
        choices = all_float(graph, config, recipe.target)
    else:
        choices = select(graph, limits, start_everywhere=start_everywhere)
    hybrids = find_hybrids(graph, choices, limits, config)
    choices |= {name: hybrid.choice for name, hybrid in hybrids.items()}
    groups = find_groups(graph, choices, ranges, config.resolution)
    activations = _activation_params(graph, choices, groups, wide, config)
    tensors: dict[str, QuantParams] = dict(activations)
    nodes: dict[str, NodePlan] = {}
    touching: list[str] = []
    for node in graph.nodes:
        choice = choices[node.name or ""]
        overrides: dict[int, QuantParams] = {}
        hybrid = hybrids.get(node.name or "")
        constants = (
            _constant_params(node, choice, graph, activations, recipe) if hybrid is None else hybrid.inputs
        )
        for index, params in constants.items():
            name = _input_name(node, index)
            if tensors.setdefault(name, params) != params:
                overrides[index] = params
        shared = _share_params(node, choice, graph, tensors)
        kind = choice.kind
        if kind is Kind.MOVE and not shared:
            kind = Kind.INTEGER  # a clip with parameters of its own is a conversion, not a move
        spelling = choice.spelling or (recipe.target.spellings.get(node.op_type, "") if shared else "")
        if _touches_wide(node, choice, graph, tensors):
            spelling = WIDE_SPELLINGS.get(spelling, spelling)
            touching.append(node.op_type)
        nodes[node.name or ""] = NodePlan(kind, choice.reason, overrides, spelling)
    if config.propagation == "return":
        tensors, nodes = _returned(graph, choices, tensors, nodes)
    notes = (
        *notes,
        *wide_note(touching, sum(p.qtype.bits == 16 for p in activations.values()), recipe.target),
    )
    if recipe.target.unsigned_codes:
        tensors, nodes, more = _unsigned(graph, tensors, nodes)
        notes = (*notes, *more)
    return QuantPlan(NO_MODEL, recipe.config, tensors, nodes, notes, groups=_shared(groups, activations))


NO_MODEL = ModelId("", "", 0)

WIDE_SPELLINGS = {"sigmoid": "runtime", "codes": "", "leaky": ""}
"""What stands for a spelling that is for 8 bits only."""


def _input_name(node: ir.Node, index: int) -> str:
    value = node.inputs[index] if index < len(node.inputs) else None
    return (value.name or "") if value is not None else ""


def _share_params(node: ir.Node, choice: Choice, graph: Graph, tensors: Mapping[str, QuantParams]) -> bool:
    """Whether all activations that a quantized node reads and makes are in the same codes."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*activation_names(node, choice.rule, graph), *outputs_of(node)]
    first = tensors.get(names[0])
    return first is not None and all(tensors.get(name) == first for name in names)


def _touches_wide(node: ir.Node, choice: Choice, graph: Graph, tensors: Mapping[str, QuantParams]) -> bool:
    """Whether a node reads or makes activations with more than 8 bits."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*activation_names(node, choice.rule, graph), *outputs_of(node)]
    return any(tensors[name].qtype.bits > 8 for name in names if name in tensors)


def _returned(
    graph: Graph,
    choices: Mapping[str, Choice],
    tensors: Mapping[str, QuantParams],
    nodes: Mapping[str, NodePlan],
) -> tuple[dict[str, QuantParams], dict[str, NodePlan]]:
    """Let the outputs of kernels that return float be float; who wants codes converts them itself."""
    stored, entries = dict(tensors), dict(nodes)
    for node in graph.nodes:
        for name in outputs_of(node) if choices[node.name or ""].returns_float else ():
            readers = [(r.name or "", i) for r, i in graph.consumers(name)]
            if name not in stored or any(entries[reader].kind is Kind.MOVE for reader, _ in readers):
                continue
            params = stored.pop(name)
            for reader, index in readers:
                if choices[reader].quantized:
                    inputs = {**entries[reader].inputs, index: params}
                    entries[reader] = replace(entries[reader], inputs=inputs)
    return stored, entries


def _unsigned(
    graph: Graph, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]
) -> tuple[dict[str, QuantParams], dict[str, NodePlan], tuple[str, ...]]:
    """Store signed activations, and the constants that they meet, as their unsigned twins."""
    weights = set()
    for node in graph.nodes:
        rule = rule_of(node)
        if rule is not None and nodes[node.name or ""].kind not in ON_CODES:
            weights |= {_input_name(node, weight.index) for weight in rule.constants}
        elif rule is not None:
            weights |= {_input_name(node, i) for i in (rule.bias, rule.weight and rule.weight.index) if i}
    twins = {
        name: unsigned_twin(params) if graph.constant(name) is None or name not in weights else params
        for name, params in tensors.items()
    }
    entries = {}
    for node in graph.nodes:
        entry, rule = nodes[node.name or ""], rule_of(node)
        data = rule.activations(node) if rule is not None and entry.kind in ON_CODES else ()
        inputs = {i: unsigned_twin(p) if i in data else p for i, p in entry.inputs.items()}
        entries[node.name or ""] = replace(entry, inputs=inputs)
    changed = sum(twins[name] != params for name, params in tensors.items())
    note = f"{changed} signed tensors are stored as their unsigned twins, which the runtime's kernels want"
    return twins, entries, (note,) if changed else ()


class _Ranges(Mapping[str, Range]):
    """Ranges by name, each calibrated when it is first asked for: many activations never are in codes."""

    def __init__(self, names: Iterable[str], calibrated: Callable[[str], Range]) -> None:
        self._names = dict.fromkeys(names)
        self._calibrated = calibrated
        self._known: dict[str, Range] = {}

    def __getitem__(self, name: str) -> Range:
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            self._known[name] = self._calibrated(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class _Spans:
    """Which values of activations count.

    Attributes:
        ranges: calibrated range of every float activation that was seen.
        useful: see `noise_budget.UsefulRange`.
    """

    ranges: Mapping[str, Range]
    useful: UsefulRange


def _spans(graph: Graph, profile: Profile, recipe: Recipe, opset: int) -> _Spans:
    config = with_limit(recipe.config)
    qtype = TYPES[config.activation_type]
    seen = [name for name, tensor in profile.items() if tensor.dtype == "float" and tensor.count]

    @cache
    def behind(name: str) -> Curve | None:
        return curve_behind(graph, name, profile[name], opset) if config.calibrator == "mse" else None

    def calibrated(name: str) -> Range:
        return _range(name, qtype, graph, profile, recipe, curve=behind(name))

    ranges = _Ranges(seen, calibrated)

    def useful(name: str) -> tuple[float, float]:
        if name in ranges and behind(name) is not None:  # what is cut was weighed when the range was chosen
            return ranges[name].low, ranges[name].high
        return useful_range(graph, name)

    return _Spans(ranges, useful)


def _range(
    name: str,
    qtype: QuantType,
    graph: Graph,
    profile: Profile,
    recipe: Recipe,
    *,
    curve: Curve | None = None,
) -> Range:
    """Return the range that the codes of one activation should cover in a type."""
    producer, config = graph.producer(name), recipe.config
    choice = calibrate(profile[name], config.calibrator, SCHEMES[config.schema], qtype, curve)
    rule = None if producer is None else rule_of(producer)
    if rule is not None and rule.bounds is not None:
        if rule.op_type in recipe.target.full_range:
            return Range(*rule.bounds)
        choice = _within(choice, rule.bounds)
    return _within(choice, useful_range(graph, name))


def _within(span: Range, limits: tuple[float, float]) -> Range:
    """Cut a range; 0 stays in it."""
    return Range(min(max(span.low, limits[0]), 0.0), max(min(span.high, limits[1]), 0.0))


def useful_range(graph: Graph, name: str) -> tuple[float, float]:
    """Return the interval outside which no reader of a tensor tells one value from another.

    What is merely moved is looked at where it arrives.
    """
    uses = graph.consumers(name)
    if not uses or graph.is_result(name):
        return -math.inf, math.inf
    low, high = math.inf, -math.inf
    for reader, index in uses:
        rule = rule_of(reader)
        if rule is None or index != 0:
            return -math.inf, math.inf
        spans = []
        if rule.useful is not None:
            spans = [rule.useful(reader, graph)]
        elif rule.constraint is Constraint.SAME and not rule.refusal(reader, graph):
            if len(outputs_of(reader)) < len(reader.outputs):
                # Beside values there are indices (TopK): it matters which of two values is the larger.
                return -math.inf, math.inf
            spans = [useful_range(graph, output) for output in outputs_of(reader)]
        if not spans:
            return -math.inf, math.inf
        low, high = min(low, *(s[0] for s in spans)), max(high, *(s[1] for s in spans))
    return low, high


def _shared(groups: Iterable[Group], params: Mapping[str, QuantParams]) -> tuple[Group, ...]:
    """Return the groups of two and more, without members that got parameters of their own after all."""
    kept = []
    for group in groups:
        first = params[group.winners[0]]
        members = {name: own for name, own in group.members.items() if params[name] == first}
        if len(members) > 1:
            kept.append(replace(group, members=members))
    return tuple(kept)


def _activation_params(
    graph: Graph,
    choices: Mapping[str, Choice],
    groups: Iterable[Group],
    wide: Collection[str],
    config: QuantConfig,
) -> dict[str, QuantParams]:
    scheme, qtype = SCHEMES[config.schema], TYPES[config.activation_type]
    params: dict[str, QuantParams] = {}
    for group in groups:
        is_wide = any(name in wide for name in group.members)
        chosen = choose_params(*group.range, scheme, wide_type(config) if is_wide else qtype)
        params.update(dict.fromkeys(group.members, chosen))
    for node in graph.nodes:  # the sigmoid table gives tanh in 128ths, whatever was profiled
        spelled = choices[node.name or ""].spelling == "sigmoid"
        if spelled and not _touches_wide(node, choices[node.name or ""], graph, params):
            zero_point = 0 if qtype.signed else 128
            fixed = QuantParams((1.0 / 128.0,), (zero_point,), qtype)
            params = _spread_params(graph, choices, params, node.outputs[0].name or "", fixed)
    return {name: params[name] for name in graph.values if name in params}


def _spread_params(
    graph: Graph, choices: Mapping[str, Choice], params: dict[str, QuantParams], name: str, fixed: QuantParams
) -> dict[str, QuantParams]:
    """Give `fixed` to a tensor and to all that is merely moved from it."""
    params = {**params, name: fixed}
    for reader, _ in graph.consumers(name):
        if choices[reader.name or ""].kind is Kind.MOVE:
            for value in reader.outputs:
                if value.name in params:
                    params = _spread_params(graph, choices, params, value.name, fixed)
    return params


def _constant_params(
    node: ir.Node, choice: Choice, graph: Graph, activations: Mapping[str, QuantParams], recipe: Recipe
) -> dict[int, QuantParams]:
    """Return the parameters of the constant inputs of a quantized node: weight, bias, constant operands."""
    rule, config = choice.rule, recipe.config
    if not choice.quantized or rule is None:
        return {}
    found: dict[int, QuantParams] = {}
    for index in rule.activations(node):
        constant = graph.constant(_input_name(node, index))
        if constant is not None and choice.kind is Kind.INTEGER:
            found[index] = choose_params(
                float(constant.min()),
                float(constant.max()),
                SCHEMES[config.schema],
                _operand_type(node, choice, graph, activations, config),
            )
    if rule.weight is not None:
        weight = graph.constant(_input_name(node, rule.weight.index))
        if weight is not None:
            found |= _weight_and_bias(node, rule, graph, activations, config)
    if rule.bias is not None and recipe.target.bias == "float":
        found.pop(rule.bias, None)
    return found


def _operand_type(
    node: ir.Node, choice: Choice, graph: Graph, activations: Mapping[str, QuantParams], config: QuantConfig
) -> QuantType:
    """Return the type of a constant operand: that of the activations beside it."""
    return (
        wide_type(config)
        if _touches_wide(node, choice, graph, activations)
        else TYPES[config.activation_type]
    )


def _weight_and_bias(
    node: ir.Node, rule: Rule, graph: Graph, activations: Mapping[str, QuantParams], config: QuantConfig
) -> dict[int, QuantParams]:
    assert rule.weight is not None
    constant = graph.constant(_input_name(node, rule.weight.index))
    assert constant is not None
    weight = constant.astype(np.float32, copy=False)
    scheme, qtype = SCHEMES[config.weight_schema], TYPES[config.weight_type]
    axis = rule.weight.axis(node, weight.ndim) if config.granularity == "channel" else None
    params = channel_params(weight, axis, scheme, qtype)
    bias = None
    if rule.bias is not None and rule.bias < len(node.inputs):
        bias = graph.constant(_input_name(node, rule.bias))
    if bias is None or rule.bias is None:
        return {rule.weight.index: params}
    data = activations[_input_name(node, 0)]
    params = weight_for_bias(data, params, bias.astype(np.float32, copy=False))
    return {rule.weight.index: params, rule.bias: bias_params(data, params)}

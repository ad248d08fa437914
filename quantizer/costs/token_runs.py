"""What a model takes without a profile: of a language model a prompt, and each token of its answer. Pure.

A product with packed weights of 4 bits is fastest for one row, and slower than float for many, where dynamic
int8 is a third of float: what is best depends on how many tokens are run together, and how many alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ...profiles.records.profile import DataId, ModelId, Profile
from ...profiles.samples.samples import input_specs
from ...profiles.samples.states import GROWING
from ...profiles.samples.token_inputs import usual_role
from ...profiles.samples.values import InputSpec
from ..operators.graph import Node, index
from ..operators.table import PRODUCTS
from ..plan.plan import RUNTIME_WEIGHTS, Kind, PredictedTime, QuantPlan
from ..prepare.shapes import infer_shapes
from ..targets.cost_table import CostTable
from ..targets.target import Target
from .predicted import CostModel
from .shapes import Shape

TOKENS = 64
"""Tokens of a prompt, and of an answer."""


@dataclass(frozen=True, eq=False)
class TokenCosts:
    """The times of nodes in the runs of a model: a prompt at once, the tokens of an answer one by one."""

    tokens: int  # of a prompt, and of its answer; 0 for a model that takes none, which is one run
    # of the run of the prompt, or the only one; and of a token in the middle of the answer
    models: tuple[CostModel, ...]
    target: Target  # the runtime

    @property
    def is_measured(self) -> bool:
        """Whether the times of packed weights are known."""
        return all(f"MatMul:packed{bits}" in self.models[0].table.kernels for bits in (4, 8))

    def times(self, node: str, plan: QuantPlan) -> tuple[float, ...]:
        """Return the microseconds of a planned node, in each of the models."""
        return tuple(_planned(model, model.graph.node(node), plan, self.target) for model in self.models)

    def total(self, times: tuple[float, ...]) -> float:
        """Return the microseconds of all runs."""
        return times[0] + (self.tokens * times[1] if self.tokens else 0.0)

    def predicted(self, plan: QuantPlan) -> PredictedTime:
        """Return the time of all runs as planned, beside float's."""
        names = [node.name for node in self.models[0].graph.nodes]
        times = [self.times(name, plan) for name in names]
        planned = tuple(sum(of_run) for of_run in zip(*times, strict=True)) or (0.0,) * len(self.models)
        floats = tuple(sum(model.floating.values()) for model in self.models)
        ratios = [after / (before or 1.0) for before, after in zip(floats, planned, strict=True)]
        return PredictedTime(
            float(f"{self.total(floats):.4g}"),
            float(f"{self.total(planned):.4g}"),
            self.models[0].table.conditions.text(self.target.name),
            self.tokens,
            self.tokens,
            *(float(f"{ratio:.4g}") for ratio in (ratios if self.tokens else ())),
        )


def token_costs(model: ir.Model, table: CostTable, target: Target) -> TokenCosts | None:
    """Return the times of nodes in the runs of a model, or None if sizes of its inputs are unknown."""
    specs = input_specs(model)
    # A language model takes any number of tokens, and has a cache of those before them.
    free = [spec for spec in specs if spec.shape and not isinstance(spec.shape[-1], int)]
    takes_tokens = any(spec.rows for spec in free) and any(map(_is_cache, specs))
    runs = ((TOKENS, 0), (1, TOKENS + TOKENS // 2)) if takes_tokens else ((0, 0),)
    models = []
    for tokens, past in runs:
        shapes = _input_shapes(specs, tokens, past)
        if shapes is None:
            return None
        models.append(_with_shapes(model, shapes, table))
    return TokenCosts(TOKENS if takes_tokens else 0, tuple(models), target)


def _planned(model: CostModel, node: Node, plan: QuantPlan, target: Target) -> float:
    entry = plan.nodes.get(node.name)
    if entry is not None and entry.kind is Kind.DYNAMIC:
        return model.integer_time(node, entry)
    if entry is None or entry.kind is not Kind.WEIGHT_ONLY or node.op_type not in PRODUCTS:
        return model.floating.get(node.name, 0.0)
    params = plan.params_read(node.name, 1, node.input(1))
    packed = entry.implementation == RUNTIME_WEIGHTS[0] or (
        not entry.implementation and node.op_type in target.weight_kernels
    )
    if params is None or not packed:
        return model.floating.get(node.name, 0.0)
    bits = params.qtype.packed_bits
    return model.packed_time(node, 8 if bits == 2 else bits)  # of 2048 x 2048 2 bits take 80 us, 8 take 64


def _is_cache(spec: InputSpec) -> bool:
    return spec.dtype.kind == "f" and any(word in spec.name.lower() for word in GROWING)


def _input_shapes(specs: tuple[InputSpec, ...], tokens: int, past: int) -> dict[str, Shape] | None:
    """Return the shapes of all inputs in a run, or None if a size is not known."""
    shapes: dict[str, Shape] = {}
    for spec in specs:
        if spec.shape is None:
            return None
        dims: list[int] = []
        for axis, size in enumerate(spec.shape):
            if isinstance(size, int):
                dims.append(size)
            elif axis == 0:
                dims.append(1)
            elif not tokens:
                return None
            elif _is_cache(spec):
                dims.append(past)
            else:
                dims.append(tokens + past if usual_role(spec.name) == "attention_mask" else tokens)
        shapes[spec.name] = tuple(dims)
    return shapes


def _with_shapes(model: ir.Model, inputs: Mapping[str, Shape], table: CostTable) -> CostModel:
    """Return the costs of a model whose inputs have these shapes; a size that is not known counts as 1."""
    copy = model.clone()
    for value in copy.graph.inputs:
        if (shape := inputs.get(str(value.name))) is not None:
            value.shape = ir.Shape(shape)
    for value in copy.graph.outputs:
        value.shape = None  # what the model declares has names for sizes
    infer_shapes(copy)
    graph = index(copy)
    shapes = {
        name: tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)
        for name, value in graph.values.items()
        if value.shape is not None
    }
    return CostModel(graph, Profile(ModelId("", "", 21), DataId(), {}), table, shapes)

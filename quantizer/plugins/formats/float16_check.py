"""What float16 loses is measured on check samples before a plan is run: nodes that lose too much are float32.

The float model is run twice, unchanged and with float16 instead of float32 (`float16_writer.emulated`),
without integers, whose error has separate limits. If the error of an output exceeds a fraction of its limit,
its tensors are compared, and nodes that amplify small noise become float32: their values are beyond float16,
or they are small differences of large numbers. If the same node still does so, its inputs become float32 too,
each time from twice as far before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ....profiles.base.findings import Code, Finding
from ....profiles.base.tuned import tuned
from ....profiles.instrumentation.subgraphs import graph_attributes
from ....profiles.runtime.states import model_samples
from ....profiles.samples.objects import DataLike
from ....profiles.samples.values import Sample
from ...evaluation.output_shift import output_shifts
from ...evaluation.runtimes import open_model, run
from ...model.graph import name_of
from ...operators.graph import Node
from ...plan.reasons import FloatReason, ReasonCode, because
from ...planning.facts import PlanningFacts
from ...planning.plan_model import PlannedModel
from .float16_nodes import with_float32_nodes
from .float16_writer import emulated, narrow_floats

SAMPLES = 4
"""Samples on which float16 is compared with float32."""

LOCATED = 2
"""Samples on which the nodes are looked for."""

SHARE = tuned(
    0.25,
    figure="0.125 makes 191 nodes of a pitch tracker float32 instead of 9, 0.5 four; no other model changes",
    chosen_on="check samples of 22 trained models, two of them affected",
)
"""Fraction of an output's limit for float16: noise adds up as squares, so this is a sixteenth."""

ROUNDS = 8
"""Models that are tried with more nodes in float32 each."""

WORTH = tuned(
    0.9,
    figure="0.45 makes 191 nodes of a pitch tracker float32 instead of 9, 0.99 changes no model",
    chosen_on="check samples of two pitch trackers",
    holds=(0.9, 0.99),
)
"""Largest fraction of an output's error that may remain with more nodes in float32."""

MAX_RUN_ELEMENTS = 2**25
"""Elements of tensors that are compared in one run, of each model."""

LOST = tuned(
    1e-4,
    figure="half of it makes 8 nodes of a pitch tracker float32 instead of 9, and changes no other model",
    chosen_on="check samples of two pitch trackers",
)
"""Noise over signal from which a tensor lost something: 40 dB; float16 itself has 70."""

GROWTH = tuned(
    4.0,
    figure="none: half and double change no model",
    chosen_on="check samples of two pitch trackers",
    holds=(2.0, 8.0),
)
"""Ratio of a node's noise to that of its inputs from which it becomes float32."""

OWN_NOISE = 2.0**-22
"""Noise over signal of numbers that float16 rounds once."""


def with_float32_nodes_on_samples(
    facts: PlanningFacts, planned: PlannedModel, data: DataLike
) -> PlannedModel:
    """Return the plan with nodes in float32 that lose too much on check samples in float16, known as such."""
    samples = tuple(model_samples(data, planned.model, SAMPLES, notes=False))
    if not samples:
        return planned
    check = _Check(planned, facts, samples)
    lost = dict(planned.known.lost_in_float16)
    wide = {name for name, entry in planned.plan.nodes.items() if entry.float32} | lost.keys()
    excess = least = check.excess(wide)
    worth = dict(lost)
    for turn in range(ROUNDS):
        if least <= SHARE:
            break
        found = check.culprits(wide, reach=2**turn)
        if not found:
            break
        lost |= found
        wide |= found.keys()
        excess = check.excess(wide)
        if excess <= WORTH * least:
            worth, least = dict(lost), excess
    lost, excess = worth, least
    planned = with_float32_nodes(replace(planned, known=replace(planned.known, lost_in_float16=lost)))
    if excess > 1.0:
        sentence = (
            f"with float16 an output is {min(excess, 999.0):.2g} times as far from float as it may be, on "
            f"{len(samples)} samples, with more nodes in float32 too"
        )
        finding = Finding(Code.FLOAT16_LOSES, sentence, remedy="--set float_type=float32 has all of them")
        planned = planned.with_findings([finding])
    return planned


class _Check:
    """The float model on samples, and its outputs and tensors with float16."""

    def __init__(self, planned: PlannedModel, facts: PlanningFacts, samples: Sequence[Sample]) -> None:
        self.model, self.graph = planned.model, planned.graph
        self.facts, self.samples = facts, samples
        self.outputs = [str(value.name) for value in self.model.graph.outputs]
        self.exact = self._run(self.model, self.outputs, samples)

    def excess(self, wide: Collection[str]) -> float:
        """Return the error of the worst output with float16, over its limit."""
        outputs = self._run(self._narrow(wide), self.outputs, self.samples)

        def arrays(run: Sequence[object]) -> dict[str, np.ndarray]:
            pairs = zip(self.outputs, run, strict=True)
            return {name: value for name, value in pairs if isinstance(value, np.ndarray)}

        floats, others = ([arrays(run) for run in runs] for runs in (self.exact, outputs))
        inputs = [sample.arrays for sample in self.samples]
        shifts = output_shifts(floats, others, self.facts.noise_limits, inputs)
        return max((math.inf if s.fault else s.excess for s in shifts), default=0.0)

    def culprits(self, wide: Collection[str], reach: int) -> dict[str, FloatReason]:
        """Return nodes that are float32 next, with `reach` nodes before each, besides those of `wide`."""
        shares = self._shares(wide)
        found: dict[str, FloatReason] = {}
        after = set[str]()  # what follows from a node that loses: that may be the cause of its loss
        for node in self.graph.nodes:
            if not after.isdisjoint(node.inputs):
                after.update(node.outputs)
                continue
            results = [(shares[name], name) for name in node.outputs if name in shares]
            if not results:
                continue
            share, name = max(results)
            read = max((shares[i] for i in node.inputs if i in shares), default=0.0)
            if share <= LOST or share <= GROWTH * max(read, OWN_NOISE):
                continue
            figures = {"sqnr": _decibels(share), "before": _decibels(max(read, OWN_NOISE))}
            count = min(LOCATED, len(self.samples))
            reason = because(ReasonCode.LOST_IN_FLOAT16, samples=count, tensor=name, **figures)
            after.update(node.outputs)
            for other in self._made_wider(node, wide, reach):
                found.setdefault(other, reason)
        return found

    def _made_wider(self, node: Node, wide: Collection[str], reach: int) -> Iterator[str]:
        """Yield the node, and the float16 nodes before it that make its inputs, over growing numbers."""
        waiting, seen = [(node, reach)], set[str]()
        while waiting:
            one, left = waiting.pop(0)
            if one.name in seen:
                continue
            seen.add(one.name)
            if one.name not in wide:
                yield one.name
                inner = (node for graph in graph_attributes(one.ir_node) for node in graph.all_nodes())
                yield from (name for name in map(name_of, inner) if name not in wide)
                left -= not (one is node or one.facts.moves_values)
            if left > 0:
                makers = (self.graph.producer(name) for name in one.inputs)
                waiting += [(maker, left) for maker in makers if maker is not None]

    def _shares(self, wide: Collection[str]) -> Mapping[str, float]:
        """Return the noise over signal of the tensors of the main graph with float16."""
        samples, narrow = self.samples[:LOCATED], self._narrow(wide)
        present = {str(value.name) for node in narrow.graph for value in node.outputs}
        places = dict[str, str]()
        for value in (value for node in self.model.graph for value in node.outputs if value.name):
            if isinstance(value.type, ir.TensorType) and value.dtype is ir.DataType.FLOAT:
                written = next((n for n in (f"{value.name}_widened", value.name) if n in present), None)
                places |= {} if written is None else {str(value.name): written}
        profile, count = self.facts.measured, max(1, self.facts.measured.data.samples)
        shares: dict[str, float] = {}
        names, elements = list[str](), 0.0
        for name in [*places, ""]:
            size = profile[name].count / count if name in profile else 1.0
            if names and (not name or elements + size > MAX_RUN_ELEMENTS):
                floats = self._run(self.model, names, samples, instrumented=True)
                others = self._run(narrow, [places[n] for n in names], samples, instrumented=True)
                for place, of in enumerate(names):
                    pairs = [(f[place], o[place]) for f, o in zip(floats, others, strict=True)]
                    shares[of] = _noise_share(pairs)
                names, elements = [], 0.0
            names.append(name)
            elements += size
        return shares

    def _narrow(self, wide: Collection[str]) -> ir.Model:
        model = self.model.clone()
        narrow_floats(model, wide)
        return emulated(model)

    def _run(
        self, model: ir.Model, names: Sequence[str], samples: Sequence[Sample], *, instrumented: bool = False
    ) -> list[list[np.ndarray]]:
        if instrumented:
            model = model.clone()
            values = {str(v.name): v for node in model.graph for v in node.outputs}
            present = {str(value.name) for value in model.graph.outputs}
            model.graph.outputs.extend(values[name] for name in names if name not in present)
        session = open_model(model, "float model")
        return [run(session, names, sample.arrays, "float model") for sample in samples]


def _noise_share(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return noise over signal of a tensor, infinite if finite values were lost."""
    signal = noise = 0.0
    for exact, other in pairs:
        if exact.shape != other.shape:
            return 0.0
        finite = np.isfinite(exact)
        if not np.isfinite(other[finite]).all():
            return math.inf
        signal += float(np.square(exact[finite], dtype=np.float64).sum())
        noise += float(np.square(exact[finite].astype(np.float64) - other[finite]).sum())
    return noise / signal if signal > 0.0 else 0.0


def _decibels(share: float) -> float:
    return -10.0 * math.log10(share) if 0.0 < share < math.inf else 0.0

"""Float against quantized, tensor by tensor in graph order.

For each pair of tensors, sums are stored for the tensor itself and after its following activation function,
because an error that this function clips or flattens never reaches another node. Tensors inside a body (a
branch of If, the body of Loop or Scan) are not compared, only the results of its node.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import DataError, ModelError, PlanError
from ....profiles.base.findings import Finding, gravest_first
from ....profiles.base.output_files import temporary_folder
from ....profiles.base.presentation import Presentation, Presented, Table, decibels
from ....profiles.base.tool import Progress
from ....profiles.instrumentation.subgraphs import FLOAT_TYPES
from ....profiles.runtime.providers import check_provider
from ....profiles.runtime.states import model_samples
from ....profiles.samples.objects import DataLike
from ....profiles.samples.states import follows, next_state
from ....profiles.samples.values import Sample
from ...adjustments.equalization import apply_equalization, equalized_name
from ...evaluation.compare import Difference, Sums
from ...evaluation.doubts import check_not_instrumented, doubts, other_graph, other_plan
from ...evaluation.options import Judge
from ...evaluation.runtimes import open_session, run
from ...lowering.lowered import PADDED, RECORD, read_equalization
from ...model.graph import name_of, output_name
from ...model.saving import save_model
from ...noise.activation_ranges import find_following_or_clip
from ...noise.mask_fillers import Rows, filler_rows, fillers_as_infinities
from ...numerics.affine import UnaryFunction
from ...operators.functions import function_of_chain
from ...operators.graph import Graph, index
from ...operators.table import DEQUANTIZE, QUANTIZE, is_clip
from ...plan.plan import NodePlan
from ...plan.provenance import read_entries, read_provenance
from ...plan.store import PlanLike, plan_name, read_plan
from ...prepare.prepare import file_of, with_shapes
from ...targets.machine import runs_here

RecordedTensor: TypeAlias = tuple[str, tuple[float, ...], tuple[int, ...], int | None]
"""A tensor of the file by name, scales, as many zero points, and their axis, None for one scale."""


def read_recorded_tensors(model: ir.Model) -> dict[str, RecordedTensor]:
    """Return a written model's record: prepared tensor -> its place; {} without one or if it is spoiled."""

    def recorded_tensor(entry: Any) -> RecordedTensor:
        return entry["name"], tuple(entry["scale"]), tuple(entry["zero_point"]), entry.get("axis")

    return read_entries(model.metadata_props, RECORD, recorded_tensor)


@dataclass(frozen=True)
class LayerComparison:
    """One activation of the prepared float model beside the same one of the quantized model.

    Attributes:
        tensor: its name.
        node, op_type: its producer; "" and "input" for an input of the graph.
        kind: of that node in the plan; "" when no plan was given.
        type: "quantized" when it is an integer tensor (dequantized here), "float" when it stayed float.
        difference: of the tensor itself over all samples; None when nothing could be compared.
        sqnr_drop: dB that this node adds: lowest effective SQNR of its inputs less that of the tensor. An
            input that was not compared has the lowest SQNR of its own inputs. Below 0 if noise averages out.
            None if one of the two is unknown or infinite.
        shape_mismatches: number of samples with different shapes.
        after: operators of the activation function or clip that all readers of the tensor together compute of
            it, such as "Relu", or "Sigmoid, Mul" for SiLU; of a float tensor inside it too. "" for none.
        difference_after: of both tensors after that function; None without one.
    """

    tensor: str
    node: str
    op_type: str
    kind: str
    type: str
    difference: Difference | None
    sqnr_drop: float | None
    shape_mismatches: int
    after: str
    difference_after: Difference | None

    @property
    def effective(self) -> Difference | None:
        """The difference that other nodes see: after the function of all readers, if there is one."""
        return self.difference if self.difference_after is None else self.difference_after


@dataclass(frozen=True, repr=False)
class LayerReport(Presented, document="layers"):
    """Every activation that both models have.

    Attributes:
        float_model, quantized_model: file names.
        samples: number of samples.
        layers: comparisons in graph order.
        missing: activations that the quantized model does not have, in graph order: inputs of a clip that is
            part of the operator before it, tensors inside a look-up table.
        findings: doubts whether the models are a float model and its quantized form, or whether the plan
            belongs to them (`doubts`).
    """

    float_model: str
    quantized_model: str
    samples: int
    layers: tuple[LayerComparison, ...]
    missing: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def headline(self) -> str:
        """Return both models, and how many layers were compared."""
        return f"{self.quantized_model} against {self.float_model}, {len(self.layers)} layers"

    def presentation(self) -> Presentation:
        """Return a table of the layers in graph order."""
        header = ("tensor", "operator", "kind", "type", "SQNR dB", "SQNR drop dB", "after")
        rows = tuple(
            (
                layer.tensor,
                layer.op_type,
                layer.kind or "-",
                layer.type,
                "-" if layer.effective is None else decibels(layer.effective.sqnr),
                "" if layer.sqnr_drop is None else f"{layer.sqnr_drop:.2f}",
                layer.after,
            )
            for layer in self.layers
        )
        facts = (("samples", str(self.samples)), ("not in the quantized model", str(len(self.missing))))
        return Presentation(facts, (Table(header, rows, left=4),), self.findings)

    def worst(self, count: int) -> tuple[LayerComparison, ...]:
        """Return the `count` layers of lowest effective SQNR, lowest first; equals in graph order."""
        compared = [(d.sqnr, layer) for layer in self.layers if (d := layer.effective) is not None]
        return tuple(layer for _, layer in sorted(compared, key=lambda pair: pair[0])[:count])


def layers_of(
    float_path: str | os.PathLike[str],
    quantized_path: str | os.PathLike[str],
    data: DataLike,
    *,
    plan: PlanLike | None = None,
    measuring: Judge | None = None,
    progress: Progress | None = None,
) -> LayerReport:
    """Run both models with their activations as outputs and return how each tensor compares.

    A quantized tensor is read as integers and dequantized here, so that integer kernels stay fused; one that
    stayed float is read unchanged, so that its last bits may differ from those of a plain run.
    """
    measuring = measuring or Judge()
    threads, provider = measuring.threads, check_provider(measuring.provider)
    float_file, quantized_file = file_of(float_path), file_of(quantized_path)
    check_not_instrumented(float_file, quantized_file)
    prepared, quantized = float_file.normalised.model, quantized_file.model
    findings = [*doubts(float_file, quantized_file), *other_graph(float_file, quantized_file)]
    nodes: Mapping[str, NodePlan] = {}
    if plan is None:
        with suppress(PlanError):  # tensors that are equalized there are left out
            prepared = apply_equalization(prepared, read_equalization(quantized), quantized_file.name)
    else:
        loaded = read_plan(plan)
        prepared = with_shapes(prepared, loaded.adjustments.shapes)
        prepared = apply_equalization(prepared, loaded.adjustments.equalization, plan_name(plan))
        nodes = loaded.nodes
        findings += other_plan(loaded, quantized_file)
    pairs = matches(prepared, quantized)
    if not pairs:
        raise ModelError(
            f"{quantized_path}: has no activation of {float_path}; "
            "compare a model with its own quantized form"
        )
    graph, opset, samples = index(prepared), prepared.graph.opset_imports.get("", 1), 0
    sums = {
        m.tensor: _TensorSums(
            m,
            filler_rows=filler_rows(graph.values[m.tensor]),
            **_function_after(graph, m.tensor, opset),
        )
        for m in pairs
    }
    provenance = read_provenance(quantized_file.model)
    is_elsewhere = provenance is not None and not runs_here(provenance.target, provider=provider)
    source = model_samples(data, prepared, measuring.limit)
    # Where a state goes from step to step, the quantized model gets its own, as in use.
    before: Sample | None = None
    own_state: dict[str, npt.NDArray[Any]] = {}
    exposed = [*(m.exposed for m in pairs), *source.state.values()]
    with (
        _exposing(prepared, [m.tensor for m in pairs], str(float_path), threads, provider) as run_float,
        _exposing(
            quantized, exposed, str(quantized_path), threads, provider, dequantized=is_elsewhere
        ) as run_int,
    ):
        for samples, sample in enumerate(source, 1):
            taken = {**sample.arrays, **(own_state if follows(sample, before) else {})}
            arrays = run_int(replace(sample, arrays=taken))
            for match, of_float, of_quantized in zip(pairs, run_float(sample), arrays, strict=False):
                sums[match.tensor].add(of_float, of_quantized)
            before = sample
            given = zip(source.state, arrays[len(pairs) :], strict=True)
            own_state = {name: next_state(one, taken.get(name)) for name, one in given}
            if progress is not None:
                progress(samples, source.total)
    if not samples:
        raise DataError(f"{source.source}: no samples; there is nothing to compare on")
    return LayerReport(
        float_model=float_file.name,
        quantized_model=quantized_file.name,
        samples=samples,
        layers=_layers(prepared.graph, sums, nodes),
        missing=tuple(
            value.name
            for value in _values_of(prepared.graph)
            if value.name
            and value.name not in sums
            and value.dtype in FLOAT_TYPES
            and isinstance(value.type, ir.TensorType)
        ),
        findings=gravest_first(findings),
    )


@contextmanager
def _exposing(
    model: ir.Model,
    names: Sequence[str],
    model_name: str,
    threads: int,
    provider: str,
    *,
    dequantized: bool = False,
) -> Iterator[Callable[[Sample], list[npt.NDArray[Any]]]]:
    """Yield a function that runs a model on a sample and returns the arrays of some tensors."""
    copy = model.clone()
    outputs = {value.name for value in copy.graph.outputs}
    by_name = {value.name: value for value in _values_of(copy.graph)}
    # An input cannot be an output; it is taken from the sample.
    inputs = {value.name for value in copy.graph.inputs}
    fetched = [n for n in dict.fromkeys(names) if n not in inputs]
    copy.graph.outputs.extend(by_name[n] for n in fetched if n not in outputs)
    with temporary_folder() as folder:
        save_model(copy, folder / "model.onnx")
        file = str(folder / "model.onnx")
        session = open_session(file, model_name, threads, provider=provider, dequantized=dequantized)

        def run_on(sample: Sample) -> list[Any]:
            where = f"{model_name}, sample {sample.name}"
            # Of no names onnxruntime returns all outputs.
            arrays = run(session, fetched, sample.arrays, where) if fetched else []
            values: dict[str, Any] = dict(zip(fetched, arrays, strict=True))
            return [sample.arrays[n] if n in inputs else values[n] for n in names]

        yield run_on


def _values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs of a graph, then node outputs in graph order."""
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _layers(
    graph: ir.Graph, sums: Mapping[str, _TensorSums], nodes: Mapping[str, NodePlan]
) -> tuple[LayerComparison, ...]:
    """Return the comparison of each tensor that has sums, in graph order."""
    # A tensor inside the function after another one that stayed float, such as the Sigmoid's of SiLU, adds no
    # noise itself: it has the difference of the tensor that the function reads.
    after: dict[str, tuple[str, Difference]] = {}
    for name, tensor in sums.items():
        if (difference := tensor.difference_after) is not None:
            floats = (inner for inner in tensor.inner if inner in sums and sums[inner].match.scale is None)
            after.update((one, (tensor.operators, difference)) for one in (*floats, name))
    sqnr: dict[str, float] = {}  # effective; of a tensor that is not in both models the lowest of its inputs
    layers = []
    for value in _values_of(graph):
        name, node = name_of(value), value.producer()
        lowest = min(
            (sqnr[read] for one in (node.inputs if node else ()) if (read := name_of(one)) in sqnr),
            default=None,
        )
        if name not in sums:
            if lowest is not None:
                sqnr[name] = lowest
            continue
        tensor = sums[name]
        operators, difference_after = after.get(name, ("", None))
        effective = tensor.difference if difference_after is None else difference_after
        drop = None
        if effective is not None:
            sqnr[name] = effective.sqnr
            drop = None if lowest is None else lowest - effective.sqnr
        maker = name_of(node)
        layers.append(
            LayerComparison(
                tensor=name,
                node=maker,
                op_type="input" if node is None else node.op_type,
                kind=nodes[maker].kind.value if maker in nodes else "",
                type="float" if tensor.match.scale is None else "quantized",
                difference=tensor.difference,
                sqnr_drop=drop if drop is not None and math.isfinite(drop) else None,
                shape_mismatches=tensor.shape_mismatches,
                after=operators,
                difference_after=difference_after,
            )
        )
    return tuple(layers)


# What is kept of one tensor while the samples stream by --------------------------------------------------


def _function_after(graph: Graph, name: str, opset: int) -> dict[str, Any]:
    """Return the fields of `_TensorSums` on the function after an activation, a clip too; {} for none."""
    following = find_following_or_clip(graph, name)
    if following is None:
        return {}
    chain = following.chain
    try:
        function = function_of_chain(chain, opset)
    except PlanError:  # onnx has no definition of an operator
        return {}
    inner = tuple(output_name(node) for node in chain.nodes[:-1])
    return {"function": function, "operators": chain.operators, "inner": inner}


@dataclass(eq=False)
class _TensorSums:
    """The sums of one tensor."""

    match: Match
    # What all readers of the tensor together compute of it, element by element, in float64.
    function: UnaryFunction | None = None
    operators: str = ""  # of that function, for people: "Relu"; "Sigmoid, Mul" for SiLU
    inner: tuple[str, ...] = ()  # names of the tensors inside it, such as the Sigmoid's of SiLU
    sums: Sums | None = None  # None before the first sample that could be compared
    sums_after: Sums | None = None  # of both tensors after the function, if there is one
    shape_mismatches: int = 0  # samples for which the shapes differed
    filler_rows: Rows | None = None  # mask fillers that are not compared, as the reader makes zeros of them

    @property
    def difference(self) -> Difference | None:
        """The difference over all samples; None when nothing could be compared."""
        return None if self.sums is None else self.sums.difference

    @property
    def difference_after(self) -> Difference | None:
        """The difference after the function; None without one, or if it is not finite."""
        if self.sums is None or self.sums_after is None:
            return None
        is_undefined = self.sums_after.non_finite > self.sums.non_finite
        return None if is_undefined else self.sums_after.difference

    def add(self, floats: npt.NDArray[Any], exposed: npt.NDArray[Any]) -> None:
        """Take one sample more: the arrays of the float model, and of the exposed tensor."""
        pair = floats, self.match.dequantized(exposed)
        if floats.shape != pair[1].shape:
            self.shape_mismatches += 1
            return
        if self.filler_rows is not None:
            pair = fillers_as_infinities(*pair, self.filler_rows)
        self.sums = (self.sums or Sums()).plus(*pair)
        if self.function is not None:
            self.sums_after = (self.sums_after or Sums()).plus(*(self._after(values) for values in pair))

    def _after(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the function of an array of any shape and float type; NaN or Inf if it is not defined."""
        assert self.function is not None
        with np.errstate(all="ignore"):
            return self.function(np.asarray(values, np.float64).reshape(-1)).reshape(values.shape)


# Which tensor of the quantized model holds each activation of the float model ----------------------------

INTEGER_TYPES = (
    ir.DataType.INT8,
    ir.DataType.UINT8,
    ir.DataType.INT16,
    ir.DataType.UINT16,
    ir.DataType.INT32,
)
"""Element types of quantized tensors that can be read as outputs."""


@dataclass(frozen=True, eq=False)
class Match:
    """The tensor of the quantized model that holds an activation of the float model."""

    tensor: str  # in the float model
    exposed: str  # in the quantized model
    scale: npt.NDArray[np.float32] | None = None  # None if `exposed` is float
    zero_point: npt.NDArray[np.integer] | None = None
    axis: int = 1
    channels: int | None = None  # how many the activation has, if the exposed tensor has more along axis 1

    def dequantized(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the float values that those of the exposed tensor stand for (ONNX DequantizeLinear)."""
        if self.channels is not None:
            values = values[:, : self.channels]
        if self.scale is None or self.zero_point is None:
            return values
        shape = [1] * values.ndim
        if self.scale.size > 1:
            shape[self.axis] = self.scale.size
        centred = values.astype(np.int64) - self.zero_point.astype(np.int64).reshape(shape)
        return np.asarray(centred.astype(np.float32) * self.scale.reshape(shape), np.float32)


def matches(prepared: ir.Model, quantized: ir.Model) -> tuple[Match, ...]:
    """Return the tensor of a quantized model, of any tool, for each activation of the prepared float model.

    It has the same name, or is in the record of `quantizer.lowering`, or is the quantized result of the node
    of the same name. A float tensor that is quantized for some readers is compared in that form.
    """
    values = {value.name: value for value in _values_of(quantized.graph)}
    nodes = {node.name: node for node in quantized.graph.all_nodes() if node.name}
    record = read_recorded_tensors(quantized)
    pairs: list[Match] = []
    for original in _values_of(prepared.graph):
        name = name_of(original)
        if original.dtype not in FLOAT_TYPES:
            continue
        if name in values:
            maker, match = values[name].producer(), None
            if maker is not None and maker.op_type == DEQUANTIZE and maker.inputs[0] is not None:
                match = _quantized_match(name, maker.inputs[0], maker)
            pairs.append(match or _quantized_by_reader(name, values[name]) or Match(name, name))
        elif name in record and record[name][0] in values:
            stored, scale, points, axis = record[name]
            arrays = np.array(scale, np.float32), np.array(points, np.int64)
            pairs.append(Match(name, stored, *arrays, axis or 0))
        elif (match := _after_its_node(original, nodes)) is not None:
            pairs.append(match)
    sizes = read_entries(quantized.metadata_props, PADDED, int)  # of the float model; {} if spoiled
    return tuple(replace(pair, channels=sizes.get(pair.tensor)) for pair in pairs)


def _quantized_by_reader(name: str, value: ir.Value) -> Match | None:
    """Return the match for a float tensor that goes into a QuantizeLinear; None for another one."""
    for use in value.uses():
        if use.node.op_type == QUANTIZE and use.idx == 0:
            return _quantized_match(name, use.node.outputs[0], use.node)
    return None


def _after_its_node(original: ir.Value, nodes: Mapping[str, ir.Node]) -> Match | None:
    """Return the match if the node that makes a tensor is in both models, and a QuantizeLinear follows it.

    None if only clips read the tensor, whose quantized values may be those of the clip, or if it is equalized
    there.
    """
    producer = original.producer()
    node = None if producer is None else nodes.get(name_of(producer))
    readers = [use.node for use in original.uses()]
    if producer is None or node is None or (readers and all(map(is_clip, readers))):
        return None
    index = original.index()
    if index is None or index >= len(node.outputs):
        return None
    if node.outputs[index].name == equalized_name(name_of(original)):
        return None
    return _quantized_by_reader(name_of(original), node.outputs[index])


def _quantized_match(name: str, value: ir.Value, node: ir.Node) -> Match | None:
    """Return the match for the tensor and parameters of a (De)QuantizeLinear; None for computed, block or
    4-bit ones."""
    scale = _constant(node.inputs[1])
    point = node.inputs[2] if len(node.inputs) > 2 else None
    zero_point = np.zeros(1, np.int64) if point is None else _constant(point)
    types = {value.dtype, None if point is None else point.dtype} - {None}
    if scale is None or zero_point is None or not types <= set(INTEGER_TYPES):
        return None
    if value.is_initializer() or node.attributes.get_int("block_size"):
        return None
    zeros = np.broadcast_to(zero_point.astype(np.int64).reshape(-1), scale.size)
    axis = node.attributes.get_int("axis", 1)
    return Match(name, name_of(value), scale.astype(np.float32).reshape(-1), zeros, axis)


def _constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()

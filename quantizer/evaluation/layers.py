"""Float against quantized, tensor by tensor in graph order: where SQNR is lost."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...profiles.base.errors import DataError, ModelError
from ...profiles.base.presentation import Presentation, Presented, Table, decibels
from ...profiles.base.tool import Progress
from ...profiles.readers.values import Sample
from ...profiles.runtime.providers import check_provider
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import input_specs, open_samples
from ..differences.sqnr import Difference
from ..equalization.apply import apply_equalization
from ..model.files import load_model
from ..model.graph import index, name_of
from ..model.saving import save_model
from ..noise.estimate_check import EstimateCheck, check_estimates, expected_sqnr, too_good_texts
from ..plan.plan import NodePlan
from ..plan.store import PlanLike, plan_name, read_plan
from ..prepare.prepare import prepare
from ..runtime.sessions import open_session, run
from .measuring import Measuring
from .order import ModelFile, check_not_instrumented, doubts, other_graph, other_plan
from .tensor_matching import TensorSums, activations, differences_after, following, matches, values_of


@dataclass(frozen=True)
class LayerComparison:
    """One activation of the prepared float model and what became of it in the quantized one.

    Attributes:
        tensor: its name.
        node, op_type: what makes it; "" and "input" for a graph input.
        kind: of that node in the plan; "" when no plan was given.
        type: "quantized" when it is an integer tensor (dequantized here), "float" when it stayed float.
        difference: of the tensor itself over all samples; None when nothing could be compared.
        sqnr_drop: dB that this node adds: lowest effective SQNR of its inputs less that of the tensor.
            An input that was not compared has the lowest SQNR of what it was computed from. Below 0 where
            noise averages out. None where one of the two is unknown or infinite.
        shape_mismatches: samples for which the shapes differed.
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
        """The difference that other nodes see: after the function of all readers where there is one."""
        return self.difference if self.difference_after is None else self.difference_after


@dataclass(frozen=True, repr=False)
class LayerReport(Presented):
    """Every activation that both models have.

    Attributes:
        float_model, quantized_model: file names.
        samples: how many were run.
        layers: in graph order.
        missing: activations that the quantized model does not have, in graph order: inputs of a clip that is
            part of the operator before it, tensors inside a look-up table.
        doubts: signs that the models are not a float one and its quantized form, or that the plan is that of
            another model (`order`).
        estimates: SQNR as it was estimated when the model was quantized, and as measured here, of the outputs
            that were compared.
    """

    float_model: str
    quantized_model: str
    samples: int
    layers: tuple[LayerComparison, ...]
    missing: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    estimates: tuple[EstimateCheck, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """The doubts, and a sentence for each estimate that was too good."""
        return self.doubts + too_good_texts(self.estimates)

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
        remarks = tuple(("remark", remark) for remark in self.remarks)
        return Presentation((*facts, *remarks), (Table(header, rows, left=4),))

    def worst(self, count: int) -> tuple[LayerComparison, ...]:
        """Return the `count` layers of lowest effective SQNR, lowest first; equals in graph order."""
        compared = [(d.sqnr, layer) for layer in self.layers if (d := layer.effective) is not None]
        return tuple(layer for _, layer in sorted(compared, key=lambda pair: pair[0])[:count])


def compare_layers(
    float_path: str | Path,
    quantized_path: str | Path,
    data: DataLike,
    *,
    plan: PlanLike | None = None,
    measuring: Measuring | None = None,
    progress: Progress | None = None,
) -> LayerReport:
    """Run both models with their activations as outputs and return how each tensor compares.

    A tensor that only an activation function reads is compared after that function too, and that counts.

    A quantized tensor is read as integers and dequantized here, so the runtime's integer kernels stay fused
    as they are in use. A tensor that stayed float is read as it is, which may keep the runtime from fusing it
    into its neighbours: its last bits can then differ from those of a plain run. All activations of one
    sample are in memory at once, of both models; nothing is kept between samples.

    Args:
        float_path: the float model; it is prepared first, as for quantizing.
        quantized_path: a quantized model of it.
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        plan: the saved plan: gives the kinds of nodes, and the equalization to apply to the float model.
        measuring: samples and threads; None for the defaults.
        progress: called after each sample with how many are done and, where known, how many there are.

    Raises:
        ModelError: a model cannot be read or run, or they have no tensor in common.
        DataError: a sample does not fit, or there is none.
        PlanError: the plan cannot be read.
    """
    measuring = measuring or Measuring()
    how = measuring.threads, check_provider(measuring.provider)
    files = ModelFile(Path(float_path)), ModelFile(Path(quantized_path))
    check_not_instrumented(*files)
    prepared, quantized = prepare(load_model(float_path)).model, files[1].model
    doubtful = doubts(*files) + other_graph(*files)
    nodes: Mapping[str, NodePlan] = {}
    if plan is not None:
        loaded = read_plan(plan)
        prepared = apply_equalization(prepared, loaded.adjustments.equalization, plan_name(plan))
        nodes, doubtful = loaded.nodes, (*doubtful, *other_plan(loaded, files[1]))
    pairs = matches(prepared, quantized)
    if not pairs:
        raise ModelError(
            f"{quantized_path}: has no activation of {float_path}; "
            "compare a model with its own quantized form"
        )
    graph, opset, samples = index(prepared), prepared.graph.opset_imports.get("", 1), 0
    sums = {m.tensor: TensorSums(m, following(graph, m.tensor, opset)) for m in pairs}
    source = open_samples(data, input_specs(prepared), measuring.limit)
    with (
        _exposing(prepared, [m.tensor for m in pairs], str(float_path), how) as run_float,
        _exposing(quantized, [m.exposed for m in pairs], str(quantized_path), how) as run_int,
    ):
        for samples, sample in enumerate(source, 1):
            values = zip(sums.items(), run_float(sample), run_int(sample), strict=True)
            sums = {tensor: s.added(f, q) for (tensor, s), f, q in values}
            if progress is not None:
                progress(samples, source.total)
    if not samples:
        raise DataError(f"{source.source}: no samples; there is nothing to compare on")
    provenance = files[1].provenance
    known = ({}, {}) if provenance is None else (provenance.estimated_sqnr, provenance.sqnr_bands)
    differences = {tensor: s.difference for tensor, s in sums.items() if not s.shape_mismatches}
    measured = {tensor: d.sqnr for tensor, d in differences.items() if d is not None}
    return LayerReport(
        float_model=files[0].name,
        quantized_model=files[1].name,
        samples=samples,
        layers=_layers(prepared.graph, sums, nodes),
        missing=tuple(name for name in activations(prepared) if name not in sums),
        doubts=doubtful,
        estimates=check_estimates(expected_sqnr(*known), measured),
    )


@contextmanager
def _exposing(
    model: ir.Model, names: Sequence[str], name: str, how: tuple[int, str]
) -> Iterator[Callable[[Sample], list[Any]]]:
    """Yield a function that runs a model on a sample and returns the tensors with the given names; `how` are
    the threads inside an operator and the full name of the execution provider."""
    threads, provider = how
    copy = model.clone()
    outputs = {value.name for value in copy.graph.outputs}
    by_name = {value.name: value for value in values_of(copy.graph)}
    # An input cannot be an output; it is taken from the sample.
    inputs = {value.name for value in copy.graph.inputs}
    fetched = [n for n in dict.fromkeys(names) if n not in inputs]
    copy.graph.outputs.extend(by_name[n] for n in fetched if n not in outputs)
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        save_model(copy, Path(folder) / "model.onnx")
        session = open_session(str(Path(folder) / "model.onnx"), name, threads, provider=provider)

        def run_on(sample: Sample) -> list[Any]:
            where = f"{name}, sample {sample.name}"
            values = dict(zip(fetched, run(session, fetched, sample.arrays, where), strict=True))
            return [sample.arrays[n] if n in inputs else values[n] for n in names]

        yield run_on


def _layers(
    graph: ir.Graph, sums: Mapping[str, TensorSums], nodes: Mapping[str, NodePlan]
) -> tuple[LayerComparison, ...]:
    """Return the comparison of each tensor that has sums, in graph order."""
    after = differences_after(sums)
    effective = {name: after[name][1] if name in after else s.difference for name, s in sums.items()}
    sqnr = _sqnr_by_tensor(graph, effective)
    layers = []
    for value in values_of(graph):
        if (name := name_of(value)) in sums:
            node, tensor = value.producer(), sums[name]
            maker, (operators, difference) = name_of(node), after.get(name, ("", None))
            layers.append(
                LayerComparison(
                    tensor=name,
                    node=maker,
                    op_type="input" if node is None else node.op_type,
                    kind=nodes[maker].kind.value if maker in nodes else "",
                    type="float" if tensor.match.scale is None else "quantized",
                    difference=tensor.difference,
                    sqnr_drop=_sqnr_drop(node, effective[name], sqnr),
                    shape_mismatches=tensor.shape_mismatches,
                    after=operators,
                    difference_after=difference,
                )
            )
    return tuple(layers)


def _sqnr_by_tensor(graph: ir.Graph, differences: Mapping[str, Difference | None]) -> dict[str, float]:
    """Return the SQNR of each tensor; one that is not in both models has the lowest of its node's inputs."""
    sqnr: dict[str, float] = {}
    for value in values_of(graph):
        name = name_of(value)
        difference, inputs = differences.get(name), _input_sqnrs(value.producer(), sqnr)
        if difference is not None:
            sqnr[name] = difference.sqnr
        elif name not in differences and inputs:
            sqnr[name] = min(inputs)
    return sqnr


def _sqnr_drop(
    node: ir.Node | None, difference: Difference | None, sqnr: Mapping[str, float]
) -> float | None:
    """Return the lowest SQNR of a node's inputs less that of its output; None where either is unknown."""
    inputs = _input_sqnrs(node, sqnr)
    if not inputs or difference is None:
        return None
    drop = min(inputs) - difference.sqnr
    return drop if math.isfinite(drop) else None


def _input_sqnrs(node: ir.Node | None, sqnr: Mapping[str, float]) -> list[float]:
    inputs = () if node is None else node.inputs
    names = [name_of(value) for value in inputs if value is not None]
    return [sqnr[name] for name in names if name in sqnr]

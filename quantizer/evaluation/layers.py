"""Float against quantized, tensor by tensor in graph order: where the signal is lost."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import DataError, ModelError
from ...profiles.samples.samples import Sample, input_specs, open_samples
from ..equalization.apply import apply_factors
from ..model.files import load_model, save_model
from ..plan.plan import NodePlan
from ..plan.store import load_plan
from ..prepare.prepare import prepare
from ..runtime.sessions import open_session, run
from .sqnr import Difference, Sums, sums_along
from .tensor_matching import Match, activations, matches, values_of


@dataclass(frozen=True)
class LayerComparison:
    """One activation of the prepared float model and what became of it in the quantized one.

    Attributes:
        tensor: its name.
        node, op_type: what makes it; "" and "input" for a graph input.
        kind: of that node in the plan; "" when no plan was given.
        form: "quantized" when it is an integer tensor (dequantized here), "float" when it stayed float.
        difference: over all samples; None when nothing could be compared.
        loss: dB that this node loses: lowest SQNR of its inputs, less its own; an input that was not compared
            stands for what it was made from. Below 0 where noise averages out. None where a side is unknown
            or infinite.
        shape_mismatches: feeds for which the shapes differed.
    """

    tensor: str
    node: str
    op_type: str
    kind: str
    form: str
    difference: Difference | None
    loss: float | None
    shape_mismatches: int


@dataclass(frozen=True)
class LayerReport:
    """Every activation that both models have.

    Attributes:
        float_model, quantized_model: file names.
        feeds: how many were run.
        layers: in graph order.
        missing: activations that the quantized model has not, in graph order: what goes into a clip that the
            operator before it took over, tensors inside a table.
    """

    float_model: str
    quantized_model: str
    feeds: int
    layers: tuple[LayerComparison, ...]
    missing: tuple[str, ...]

    def worst(self, count: int) -> tuple[LayerComparison, ...]:
        """Return the `count` layers of lowest SQNR, lowest first; equals in graph order."""
        known = [layer for layer in self.layers if layer.difference is not None]
        return tuple(
            sorted(known, key=lambda layer: layer.difference.sqnr if layer.difference else 0.0)[:count]
        )


def compare_layers(
    float_path: str | Path,
    quantized_path: str | Path,
    data: str | Path,
    limit: int | None = None,
    *,
    plan: str | Path | None = None,
    threads: int = 1,
    progress: Callable[[int, int | None], None] | None = None,
) -> LayerReport:
    """Run both models with their activations as outputs and return how each tensor compares.

    A tensor in codes is read as codes and dequantized here, so the runtime's integer kernels stay fused as
    they are in use. A tensor that stayed float is read as it is, which may keep the runtime from fusing it
    into its neighbours: its last bits can then differ from those of a plain run. All activations of one
    sample are in memory at once, of both models; nothing is kept between samples.

    Args:
        float_path: the float model; it is prepared first, as for quantizing.
        quantized_path: the model that qprof made of it.
        data: folder of samples, or "module:function" for a Python iterable of feeds.
        limit: use the first so many feeds only.
        plan: the saved plan: gives the kinds of nodes, and finds more tensors in codes.
        threads: threads inside an operator.
        progress: called after each sample with how many are done and, where known, how many there are.

    Raises:
        ModelError: a model cannot be read or run, or they have no tensor in common.
        DataError: a sample does not fit, or there is none.
        PlanError: the plan cannot be read.
    """
    prepared, quantized = prepare(load_model(float_path)).model, load_model(quantized_path)
    loaded = None if plan is None else load_plan(plan)
    if loaded is not None:
        prepared = apply_factors(prepared, loaded.adjustments.equalization, str(plan))
    found = matches(prepared, quantized, None if loaded is None else loaded.tensors)
    if not found:
        raise ModelError(
            f"{quantized_path}: has no activation of {float_path}; "
            "compare a model with its own quantized form"
        )
    with (
        _exposing(prepared, [m.tensor for m in found], str(float_path), threads) as run_float,
        _exposing(quantized, [m.exposed for m in found], str(quantized_path), threads) as run_quantized,
    ):
        sums = [_Layer() for _ in found]
        feeds = 0
        source = open_samples(str(data), input_specs(prepared), limit)
        for sample in source:
            pairs = zip(found, run_float(sample), run_quantized(sample), strict=True)
            sums = [s.added(f, m.real(q)) for s, (m, f, q) in zip(sums, pairs, strict=True)]
            feeds += 1
            if progress is not None:
                progress(feeds, source.total)
    if not feeds:
        raise DataError(f"{data}: no samples; there is nothing to compare on")
    have = {m.tensor for m in found}
    return LayerReport(
        float_model=Path(float_path).name,
        quantized_model=Path(quantized_path).name,
        feeds=feeds,
        layers=_layers(prepared, found, sums, {} if loaded is None else loaded.nodes),
        missing=tuple(name for name in activations(prepared) if name not in have),
    )


@contextmanager
def _exposing(
    model: ir.Model, names: Sequence[str], name: str, threads: int
) -> Iterator[Callable[[Sample], list[Any]]]:
    """Yield a function that runs a model on a sample and returns the tensors with the given names."""
    copy = model.clone()
    there = {value.name for value in copy.graph.outputs}
    by_name = {value.name: value for value in values_of(copy.graph)}
    # An input cannot be an output; it is read from the feed.
    inputs = {value.name for value in copy.graph.inputs}
    copy.graph.outputs.extend(by_name[n] for n in dict.fromkeys(names) if n not in there and n not in inputs)
    fetched = [n for n in dict.fromkeys(names) if n not in inputs]
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        save_model(copy, Path(folder) / "model.onnx")
        session = open_session(str(Path(folder) / "model.onnx"), name, threads)

        def run_on(sample: Sample) -> list[Any]:
            found = dict(
                zip(fetched, run(session, fetched, sample.feed, f"{name}, sample {sample.name}"), strict=True)
            )
            return [sample.feed[n] if n in inputs else found[n] for n in names]

        yield run_on


@dataclass(frozen=True, eq=False)
class _Layer:
    """What is kept of one tensor."""

    sums: Sums | None = None
    mismatches: int = 0

    def added(self, floats: npt.NDArray[Any], quantized: npt.NDArray[Any]) -> _Layer:
        if floats.shape != quantized.shape:
            return replace(self, mismatches=self.mismatches + 1)
        sums = sums_along(floats, quantized, (None,))[0]
        return replace(self, sums=sums if self.sums is None else self.sums.added(sums))


def _layers(
    prepared: ir.Model, found: Sequence[Match], sums: Sequence[_Layer], nodes: Mapping[str, NodePlan]
) -> tuple[LayerComparison, ...]:
    kept = {match.tensor: (match, s) for match, s in zip(found, sums, strict=True)}
    sqnr: dict[str, float] = {}
    layers = []
    for value in values_of(prepared.graph):
        name, node = value.name or "", value.producer()
        inputs = (
            [] if node is None else [sqnr[v.name] for v in node.inputs if v is not None and v.name in sqnr]
        )
        if name not in kept:
            if inputs:  # nothing is known of it but what it was made from
                sqnr[name] = min(inputs)
            continue
        match, layer = kept[name]
        difference = None if layer.sums is None else layer.sums.difference()
        if difference is not None:
            sqnr[name] = difference.sqnr
        loss = min(inputs) - difference.sqnr if inputs and difference is not None else math.nan
        maker = "" if node is None else node.name or ""
        layers.append(
            LayerComparison(
                tensor=name,
                node=maker,
                op_type="input" if node is None else node.op_type,
                kind=nodes[maker].kind.value if maker in nodes else "",
                form="float" if match.scale is None else "quantized",
                difference=difference,
                loss=loss if math.isfinite(loss) else None,
                shape_mismatches=layer.mismatches,
            )
        )
    return tuple(layers)

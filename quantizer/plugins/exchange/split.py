"""`split`: the plan of a joined model, written as a quantized file for each part.

A quantized tensor is passed from one part to the next as float values, and quantized again to the same
integers. So the files, run one after the other, compute the same as the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import onnx_ir as ir
import onnxruntime as ort

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ModelError
from ....profiles.base.findings import Finding
from ....profiles.base.output_files import FileBatch, made_folder, replacing_together, temporary_folder
from ....profiles.base.tool import note, notes_once
from ....profiles.instrumentation.subgraphs import graph_attributes
from ...adjustments.bias_correction import apply_biases
from ...evaluation.runtimes import open_session
from ...evaluation.written_model import check_target, smoke_run
from ...lowering.lower import lower
from ...model.files import ModelLike
from ...model.identity import model_id
from ...model.output_paths import FilesRead, check_outputs
from ...model.saving import has_external_data, save_model
from ...operators.graph import index
from ...plan.plan import Adjustments, PlanOrigin, QuantPlan
from ...plan.store import PlanLike, plan_name, read_plan
from ...plan.verify import verify_plan
from ...planning.plan_model import open_plan
from ...prepare.prepare import ModelFile, PreparedModel, opened
from .parts import RECORD, Part, read_parts

V = TypeVar("V")


@dataclass(frozen=True)
class PartFile:
    """A quantized part that was written."""

    part: str  # its name
    file: Path  # where it is
    size: int  # of its files in bytes, external data included
    findings: tuple[Finding, ...]  # on the part


@checks_arguments
def split(model: ModelLike, plan: PlanLike, folder: str | os.PathLike[str]) -> tuple[PartFile, ...]:
    """Write the parts of a joined model as quantized files, by the plan of the whole.

    Run one after the other, they compute the same as the quantized model of the whole, bit for bit. All are
    written, or none. Notes report problems of a part.

    Args:
        model: the joined float model, which `join` wrote: path, `onnx.ModelProto` or `onnx_ir.Model`.
        plan: made for it, path or object.
        folder: gets `PART.int8.onnx` for each part, with the inputs and outputs of the part's float file;
            created if missing.

    Returns:
        Each part with its file, its size in bytes and its findings.

    Raises:
        ModelError: the model was not joined, is not in float32, or onnxruntime refuses a part.
        PlanError: the plan is that of another model. ConfigError: a file cannot be written.
    """
    with notes_once(), opened(model) as file:
        written = _written_parts(file, plan, Path(folder))
        for part in written:
            for finding in part.findings:
                note(replace(finding, sentence=f"part {part.part}: {finding.sentence}"))
    return written


def _written_parts(file: ModelFile, plan: PlanLike, target: Path) -> tuple[PartFile, ...]:
    where, prepared = plan_name(plan), file.prepared
    parts = read_parts(prepared.model, str(file))
    if prepared.narrow is not None:
        raise ModelError(
            f"{file}: is in {prepared.narrow.name.lower()}, and only float32 models are split; export "
            "the parts in float32 and join them again"
        )
    planned = open_plan(prepared, read_plan(plan), where)
    cuts = [_cut(planned.model, planned.plan, part, where) for part in parts]
    files = {part.name: target / f"{part.name}.int8.onnx" for part in parts}
    read = FilesRead((file.path,), (plan,))
    with made_folder(target):
        check_outputs(files.values(), read)
        with replacing_together(read.weights) as batch:
            return tuple(
                _written(prepared, part.name, cut, files[part.name], batch)
                for part, cut in zip(parts, cuts, strict=True)
            )


def _cut(model: ir.Model, plan: QuantPlan, part: Part, where: str) -> tuple[ir.Model, QuantPlan]:
    """Return a part of the prepared model, in the names of its file, and its share of the plan."""
    graph = model.graph
    values = {str(v.name): v for v in (*graph.inputs, *(v for node in graph for v in node.outputs))}
    for name, port in {**part.inputs, **part.outputs}.items():
        if port.name not in values:
            raise ModelError(
                f"part {part.name}: '{name}' ({port.name}) is not in the prepared model; join again"
            )
    inputs = {port.name: values[port.name] for port in part.inputs.values()}
    outputs = [values[port.name] for port in part.outputs.values()]
    nodes = _nodes_between(inputs, outputs, part)
    constants = {v: None for node in graph if node in nodes for v in _reads(node) if v.is_initializer()}
    view = ir.GraphView(
        list(inputs.values()),
        outputs,
        nodes=[node for node in graph if node in nodes],
        initializers=tuple(constants),
        opset_imports=graph.opset_imports,
        name=part.name,
    )
    own = ir.Model(view.clone(), ir_version=model.ir_version)
    renamed = _rename(own, part)
    # Inputs and outputs have the shapes of the part's file, but for sizes that were fixed since.
    for ends, ports in ((own.graph.inputs, part.inputs), (own.graph.outputs, part.outputs)):
        for value in ends:
            shape, declared = value.shape, ports[str(value.name)].shape
            if declared is not None and shape is not None and len(shape) == len(declared):
                pairs = zip(shape, declared, strict=True)
                value.shape = ir.Shape([now if isinstance(now, int) else was for now, was in pairs])
            elif declared is not None:
                value.shape = ir.Shape(declared)
    own.metadata_props.update(part.metadata)
    identity = model_id(own, f"{part.name}.onnx")
    present = {*values, *graph.initializers, *(str(node.name) for node in graph)}
    share = replace(_share(plan, own, renamed, present), model=identity)
    corrected = apply_biases(own, share.adjustments.biases)
    verify_plan(share, index(corrected), identity, f"{where}, part {part.name}")
    return own, share


def _nodes_between(inputs: Mapping[str, ir.Value], outputs: list[ir.Value], part: Part) -> set[ir.Node]:
    """Return the nodes that compute a part's outputs; raise ModelError if they read another part."""
    ends, nodes, waiting = set(inputs.values()), set[ir.Node](), list(outputs)
    while waiting:
        value = waiting.pop()
        if value in ends or value.is_initializer():
            continue
        node = value.producer()
        if node is None:
            raise ModelError(
                f"part {part.name}: the prepared model computes it from '{value.name}', which is not an "
                "input of this part; quantize the part separately"
            )
        if node not in nodes:
            nodes.add(node)
            graphs = [g for graph in graph_attributes(node) for g in (graph, *graph.subgraphs())]
            inner = {v for g in graphs for n in g for v in n.outputs} | {v for g in graphs for v in g.inputs}
            waiting += [v for v in _reads(node) if v not in inner]
    return nodes


def _reads(node: ir.Node) -> list[ir.Value]:
    """Return the inputs of a node, and those of the nodes and outputs of its subgraphs."""
    graphs = [g for graph in graph_attributes(node) for g in (graph, *graph.subgraphs())]
    readers = (node, *(n for graph in graph_attributes(node) for n in graph.all_nodes()))
    return [*(v for n in readers for v in n.inputs if v is not None), *(v for g in graphs for v in g.outputs)]


def _rename(model: ir.Model, part: Part) -> Callable[[str], str]:
    """Give nodes and tensors the names of the part's file; return the function from old names to new ones."""
    ports = {port.name: name for name, port in (*part.inputs.items(), *part.outputs.items())}
    values: dict[ir.Value, None] = {}
    for graph in model.graphs():
        results = (value for node in graph for value in node.outputs)
        values |= dict.fromkeys((*graph.inputs, *graph.initializers.values(), *results))
    taken = set(ports.values())
    names: dict[str, str] = dict(ports)
    for value in values:
        name = str(value.name)
        if value.name and name not in names:
            new = part.own_name(name)
            names[name] = name if new in taken else new
            taken.add(names[name])
    for value in values:
        if value.name:
            value.name = names[str(value.name)]
    for node in model.graph.all_nodes():
        node.name = part.own_name(str(node.name))
    return lambda name: names.get(name, part.own_name(name))


def _share(
    plan: QuantPlan, model: ir.Model, renamed: Callable[[str], str], present: Collection[str]
) -> QuantPlan:
    """Return a part's share of a plan, in its names; a Mul of equalization goes to the part that has it."""
    nodes = {str(node.name) for node in model.graph}
    tensors = {
        str(v.name) for graph in model.graphs() for node in graph for v in (*node.inputs, *node.outputs) if v
    }
    tensors |= {str(v.name) for v in model.graph.inputs}

    def of(entries: Mapping[str, V], names: Collection[str]) -> dict[str, V]:
        """Return the entries of this part, with biases that are in the plan but not yet in the model."""
        own = {name: renamed(name) for name in entries}
        return {
            own[n]: e for n, e in entries.items() if own[n] in names or (own[n] != n and n not in present)
        }

    adjusted, origin = plan.adjustments, plan.origin
    outputs = {str(value.name) for value in model.graph.outputs}
    return replace(
        plan,
        tensors=of(plan.tensors, tensors),
        nodes=of(plan.nodes, nodes),
        shared_scales=(),
        adjustments=Adjustments(
            of(adjusted.equalization, tensors),
            of(adjusted.biases, nodes),
            of(adjusted.roundings, nodes),
            of(adjusted.padded_channels, tensors),
            of(adjusted.folded_widths, nodes),
            of(adjusted.shapes, tensors),
        ),
        origin=PlanOrigin(origin.profile, of(origin.estimated_sqnr, outputs), of(origin.sqnr_bands, outputs)),
    )


def _written(
    prepared: PreparedModel, part: str, cut: tuple[ir.Model, QuantPlan], file: Path, batch: FileBatch
) -> PartFile:
    """Lower a part, write it into the batch, load it in onnxruntime and run it once."""
    model, plan = cut
    lowered = lower(model, plan)
    lowered.model.metadata_props.pop(RECORD, None)
    of_target = check_target(lowered.model, plan, None, str(file))
    temporary = save_model(lowered.model, file, has_external_data(prepared.model), batch)
    name = f"{file} (not written)"
    with temporary_folder() as folder:

        def original() -> ort.InferenceSession:
            save_model(model, folder / "part.onnx")
            return open_session(str(folder / "part.onnx"), f"part {part}")

        of_run = smoke_run(open_session(str(temporary), name), original, name, {})
    findings = (*lowered.findings, *of_target, *(() if of_run is None else (of_run,)))
    return PartFile(part, file, batch.size(temporary), findings)

"""A plan from another tool's result: a quantized ONNX model, or a file of parameters.

`quantized_models` reads models. Files of parameters are for converters that know the model, so they omit
facts that follow from it: axes, and tensors that are only moved.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ConfigError, MalformedError, ModelError, PlanError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.tool import note, notes_once
from ...adjustments.equalization import apply_equalization
from ...lowering.lowered import read_equalization
from ...model.graph import constant_of
from ...model.loading import load_model
from ...model.output_paths import FilesRead, check_outputs
from ...numerics.affine import QuantParams
from ...operators.graph import Graph, index
from ...operators.table import Constraint
from ...plan.plan import QuantPlan
from ...plan.store import save_plan
from ...prepare.prepare import file_of
from ...targets.forms import FormName
from ...targets.loading import load_recipe
from ...targets.target import Recipe
from .encodings import document
from .foreign import ForeignParams, assumption, omission
from .formats import FORMATS, read_as, recognised
from .qnn import has_mappings
from .quantized_models import source_of_model
from .source_plan import SourceNode, SourceParams, plan_of_source


@checks_arguments
def import_plan(
    source: str | os.PathLike[str],
    float_model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    target: str | os.PathLike[str] | Recipe | None = None,
    form: FormName | None = None,
) -> QuantPlan:
    """Read the scales, zero points and integers that another tool chose as a plan.

    `quantize(model, plan=...)` applies it. Nodes that the target does not support stay float, with the
    reason; the plan's findings list the losses.

    Args:
        source: a quantized ONNX model of any tool (QDQ, QLinear operators, dynamic, weight-only), or a file
            of parameters, of a format that `qprof export --help` lists.
        float_model: the file of the float model that was quantized.
        output: file for the plan; None to write no file.
        target: the runtime to plan for; by default onnxruntime-x86.
        form: output format of the plan; by default that of the source, if the target reads it.

    Returns:
        The plan, verified.

    Raises:
        ModelError: a model cannot be read, or the source is no quantized form of the float model.
        ConfigError: the source is of no known format; the output cannot be written.
    """
    check_outputs([output], FilesRead((float_model,), (source,)))
    recipe = (
        target
        if isinstance(target, Recipe)
        else load_recipe(None if target is None else os.fspath(target), {"form": form})
    )
    with notes_once():
        plan = plan_of_file(source, float_model, recipe, keep_form=form is None)
        for finding in plan.findings:
            note(finding)
        if target is None:
            sentence = f"the plan is for target {plan.config.target}"
            note(Finding(Code.TARGET_ASSUMED, sentence, plan.config.target, remedy="another one: --target"))
    if output is not None:
        save_plan(plan, output)
    return plan


def plan_of_file(
    source: str | os.PathLike[str],
    float_model: str | os.PathLike[str],
    recipe: Recipe,
    *,
    keep_form: bool = False,
) -> QuantPlan:
    """Return the plan that another tool followed, to the bit; `keep_form` keeps QLinear operators."""
    file, where = file_of(float_model), os.fspath(source)
    prepared = file.prepared
    if Path(where).suffix.lower() == ".onnx":
        model = load_model(where)
        written_by = " ".join(filter(None, (model.producer_name, model.producer_version)))
        name, equalization = Path(where).name, read_equalization(model)
        try:
            graph = index(apply_equalization(prepared.model, equalization, name))
        except PlanError as error:
            raise ModelError(f"{error}; give the float model that it was made from with --model") from None
        said = source_of_model(graph, model, name, written_by)
        said = replace(said, adjustments=replace(said.adjustments, equalization=equalization))
        if keep_form and said.has_operators and "qoperator" in recipe.target.forms:
            recipe = replace(recipe, config=replace(recipe.config, form="qoperator"))
        return plan_of_source(prepared.model, said, recipe)
    try:
        data = Path(where).read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); correct the path") from None
    entry = recognised(data, "parameters")
    if entry is None:
        raise _not_parameters(data, where)
    params = read_as(entry, data, where, ConfigError)
    assert isinstance(params, ForeignParams)
    params = with_axes(params, prepared.graph)
    params = of_kept_constants(params, file.model, prepared.graph)
    return plan_of_params(prepared.model, params, recipe)


def _not_parameters(data: bytes, where: str) -> ConfigError:
    """Return the error for a file without readable parameters."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        try:
            top = document(data)
        except MalformedError as problem:
            return ConfigError(problem.message(where, "give the file as the other tool wrote it"))
        if has_mappings(top):
            return ConfigError(
                f"{where}: contains AIMET encodings {top.get('version')}; read are 1.0, 2.0 and 2.1: export "
                "the simulation again with encoding_version='1.0.0' or '2.0.0'"
            )
    ranges, parameters = (
        ", ".join(entry.name for entry in FORMATS.values() if entry.is_read and entry.holds == kind)
        for kind in ("ranges", "parameters")
    )
    return ConfigError(
        f"{where}: is neither an ONNX model (*.onnx) nor a file of ranges ({ranges}) or of parameters "
        f"({parameters}); give one of these, see 'qprof export --help'"
    )


def plan_of_params(model: ir.Model, params: ForeignParams, recipe: Recipe) -> QuantPlan:
    """Return the plan with the parameters of another tool, bit for bit; biases get the parameters that
    products require."""
    graph = index(model)
    params = with_moved_values(with_axes(params, graph), graph)
    tensors, findings = params.tensors, params.findings
    nodes = {
        node.name: SourceNode(
            {i: tensors[n] for i, n in enumerate(node.inputs) if n in tensors and graph.is_float(n)}
        )
        for node in graph.nodes
    }
    activations = {n: p for n, p in tensors.items() if n in graph.values and not graph.is_constant(n)}
    unknown = [name for name in tensors if name not in graph.values]
    if unknown:
        sentence = (
            f"{len(unknown)} tensors of {params.tool} are not in the prepared model, such as '{unknown[0]}': "
            "left out"
        )
        findings = (*findings, omission(sentence, unknown[0], tensors=len(unknown)))
    return plan_of_source(model, SourceParams(params.tool, activations, nodes, findings=findings), recipe)


# What a file of parameters leaves to the model -------------------------------------------------------------


def with_moved_values(params: ForeignParams, graph: Graph) -> ForeignParams:
    """Return parameters including outputs of operators that move values, which tools omit."""
    tensors, added = dict(params.tensors), list[str]()
    for node in graph.nodes:
        rule, source = node.rule, tensors.get(node.input(0))
        if rule is None or rule.constraint is not Constraint.SAME or source is None:
            continue
        if source.axis is None:
            missing = [name for name in node.results if name not in tensors and graph.is_float(name)]
            tensors.update(dict.fromkeys(missing, source))
            added += missing
    if not added:
        return params
    some = f"'{added[0]}'" if len(added) == 1 else f"'{added[0]}' and {len(added) - 1} more"
    sentence = f"the file has no parameters for these tensors, so they come from their inputs: {some}"
    taken = assumption(sentence, added[0], tensors=len(added))
    return replace(params, tensors=tensors, findings=(*params.findings, taken))


FITS = 0.2
"""Misfit up to which scales may be those of a constant."""


def of_kept_constants(params: ForeignParams, original: ir.Model, graph: Graph) -> ForeignParams:
    """Return parameters without those of constants that preparation changed, unless they are of the changed
    ones, as a tool that folds BatchNormalization too writes them."""
    values, lost = original.graph.initializers, list[str]()
    for name, tensor in params.tensors.items():
        before, after = constant_of(values.get(name)), graph.constant(name)
        if before is None or after is None or np.array_equal(before, after):
            continue
        if before.shape != after.shape or _misfit(tensor, after) > min(_misfit(tensor, before), FITS):
            lost.append(name)
    if not lost:
        return params
    sentence = f"left out: {len(lost)} constants that preparation changed, such as '{lost[0]}'"
    remedy = "change them in the float model (fold BatchNormalization), and make the file for that"
    finding = omission(sentence, lost[0], remedy, constants=len(lost))
    kept = {name: tensor for name, tensor in params.tensors.items() if name not in lost}
    return replace(params, tensors=kept, findings=(finding, *params.findings))


def _misfit(params: QuantParams, values: npt.NDArray[Any]) -> float:
    """Return how unevenly the largest values of a constant fill the ranges of its scales; inf for blocks."""
    if params.block_size is not None:
        return math.inf
    others = tuple(axis for axis in range(values.ndim) if axis != params.axis)
    filled = np.log(np.maximum(np.abs(values).max(axis=others), 1e-30) / params.scale)
    return float(np.std(filled) if filled.size > 1 else abs(filled[0] - math.log(params.qtype.high)))


def with_axes(params: ForeignParams, graph: Graph) -> ForeignParams:
    """Return parameters with an axis of the model if the file names none (`ForeignParams.axis_unknown`).

    It is that of the output channels, or the only one of that length. What fits no axis is left out.
    """
    tensors, findings = dict[str, QuantParams](), list(params.findings)
    for name, tensor in params.tensors.items():
        placed = _along_axis(name, tensor, name in params.axis_unknown, graph)
        if placed is not None:
            tensors[name] = placed
        elif graph.is_constant(name):
            sentence = f"left out: '{name}': its scales do not fit an axis of the model's constant"
            findings.append(omission(sentence, name))
        else:
            sentence = f"left out: '{name}': it is an activation, and has several scales"
            findings.append(omission(sentence, name))
    return replace(params, tensors=tensors, findings=tuple(findings), axis_unknown=frozenset[str]())


def _along_axis(name: str, params: QuantParams, unknown: bool, graph: Graph) -> QuantParams | None:
    """Return the parameters of a tensor along the right axis; None if no axis fits."""
    if params.axis is None or name not in graph.values:
        return params
    shape = graph.shape(name)
    if shape is None or not graph.is_constant(name):
        one = len(params.scale) == 1 and params.block_size is None
        return replace(params, axis=None) if one else None
    sizes = tuple(size or 0 for size in shape)
    if params.block_size is not None:
        return _blocks_of_taps(params, sizes)
    if not unknown:
        return params
    channels = len(params.scale)
    axes = [  # in each node that reads the constant as a weight
        layout.axis(node, len(sizes))
        for node, position in graph.consumers(name)
        if (rule := node.rule) is not None
        for layout in rule.constants
        if layout.index == position
    ]
    if sizes.count(channels) == 1:
        axes.append(sizes.index(channels))
    axis = next((a % len(sizes) for a in axes if a is not None and sizes[a] == channels), None)
    return None if axis is None else replace(params, axis=axis)


def _blocks_of_taps(params: QuantParams, sizes: tuple[int, ...]) -> QuantParams | None:
    """Return parameters of blocks with a scale for each block of ONNX's array; all taps may share one."""
    axis, block, count = params.axis, params.block_size, len(params.scale)
    assert axis is not None
    assert block is not None
    if axis > 1 or len(sizes) < 2 or sizes[axis] % block:
        return None
    blocks, taps = sizes[0] * sizes[1] // block, math.prod(sizes[2:])
    if count == blocks * taps:
        return params
    if count != blocks:
        return None
    return replace(params, scale=params.scale.repeat(taps), zero_point=params.zero_point.repeat(taps))

"""Files of other tools: `import_profile`, `import_plan`, `export`; models in several: `join`, `split`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.errors import ProfileError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.output_files import read_bytes, write_atomically
from ....profiles.base.tool import note, notes_once
from ....profiles.records.profile import Profile
from ....profiles.records.store import save_profile
from ...model.files import ModelLike
from ...model.identity import check_model
from ...model.output_paths import FilesRead, check_outputs
from ...plan.documents import OWN, read_document, read_profile
from ...plan.plan import QuantPlan
from ...plan.store import PlanLike, save_plan
from ...planning.needed_tensors import missing_tensors
from ...prepare.prepare import ProfileLike, opened
from ...targets.forms import FormName
from ...targets.loading import load_recipe
from ...targets.target import Recipe
from . import join as joining
from . import split as splitting
from .exporting import file_content
from .formats import format_named, recognised
from .importing import plan_of_file
from .join import Joined
from .profiles import bind, ranges_profile
from .split import PartFile


def holds_ranges(file: str | os.PathLike[str]) -> bool:
    """Whether a file has ranges, which `import_profile` reads, instead of parameters or a model."""
    if Path(file).suffix.lower() == ".onnx":
        return False
    data = read_bytes(file, ProfileError)
    return data.startswith(OWN) or recognised(data, "ranges") is not None


@checks_arguments
def import_profile(
    file: str | os.PathLike[str],
    model: ModelLike,
    output: str | os.PathLike[str] | None = None,
    *,
    chosen_ranges: bool = False,
) -> Profile:
    """Read the ranges that a calibrator of another tool recorded as the profile of a model.

    What the file cannot tell, and what does not fit the model, is noted. `quantize` and all else that takes a
    profile takes such a file too; this writes it once.

    Args:
        file: of a format that `qprof export --help` lists, recognised by its content.
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        output: where to write the profile; None for nowhere.
        chosen_ranges: take the ranges that the other tool chose, even where its file has histograms.

    Returns:
        The profile, bound to the model.

    Raises:
        ProfileError: the file is malformed, holds no ranges, or has none for this model.
        ModelError: the model cannot be read. ConfigError: the output cannot be written.
    """
    check_outputs([output], FilesRead((model,), (file,)))
    data, where = read_bytes(file, ProfileError), os.fspath(file)
    entry = None if data.startswith(OWN) else recognised(data)
    if entry is None:
        raise ProfileError(
            f"{where}: is of no format that is read as ranges; give a file of onnxruntime, TensorRT or Glow "
            "(a profile of qprof needs no import)"
        )
    with notes_once(), opened(model) as opened_model:
        prepared = opened_model.prepared
        profile = ranges_profile(entry, data, where, chosen_ranges=chosen_ranges)
        profile = bind(profile, prepared.model, prepared.identity, where)
        for finding in missing_tensors(profile, prepared.graph, where):
            note(finding)
        note(Finding(Code.IMPORT_LOSES, f"{where}: holds {entry.lost_reading}", where))
    if output is not None:
        save_profile(profile, output)
    return profile


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

    `quantize(model, plan=...)` applies it. What the target does not take stays float, with the reason; what
    cannot be kept is in the plan's findings.

    Args:
        source: a quantized ONNX model of any tool (QDQ, QLinear operators, dynamic, weight-only), or a file
            of parameters, of a format that `qprof export --help` lists.
        float_model: the file of the float model that was quantized.
        output: where to write the plan; None for nowhere.
        target: the runtime to plan for; by default onnxruntime-x86.
        form: output format of the plan; by default that of the source, where the target reads it.

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


@checks_arguments
def export(
    source: ProfileLike | PlanLike,
    model: ModelLike,
    format: str,
    output: str | os.PathLike[str] | None = None,
) -> str | bytes:
    """Write a profile or a plan as a file of another tool.

    What the format cannot hold is noted.

    Args:
        source: path or object. Of a plan a format of ranges gets what its quantized activations represent,
            and so the ranges that a calibrator of qprof chose.
        model: the float model: path, `onnx.ModelProto` or `onnx_ir.Model`.
        format: name of the format, such as "tensorrt-cache".
        output: where to write the file; None for nowhere.

    Returns:
        What the file holds.

    Raises:
        ConfigError: there is no such format, or it needs a plan; the output cannot be written.
        ProfileError, PlanError: the source cannot be read, or belongs to another model.
        ModelError: the model cannot be read.
    """
    entry = format_named(format)
    check_outputs([output], FilesRead((model,), (source,)))
    with notes_once(), opened(model) as opened_model:
        prepared = opened_model.prepared
        document = source if isinstance(source, Profile | QuantPlan) else read_document(Path(source))
        where = "the plan" if isinstance(source, QuantPlan | Profile) else os.fspath(source)
        if isinstance(document, Profile):
            document = read_profile(document, prepared.model, prepared.identity)
        else:
            check_model(document.model, prepared.identity, where)
        content = file_content(document, prepared.model, format)
        if entry.holds == "ranges" and isinstance(document, QuantPlan):
            sentence = "the ranges are those that the plan represents, of its quantized activations alone"
            note(Finding(Code.EXPORT_LOSES, f"{format}: {sentence}", format))
        note(Finding(Code.EXPORT_LOSES, f"{format}: losses: {entry.lost_writing}", format))
    if output is not None:
        write_atomically(output, content)
    return content


@checks_arguments
def join(
    models: Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    functions: Iterable[str | os.PathLike[str]] = (),
    connect: Sequence[str] = (),
) -> Joined:
    """Write the model that several files make together, and that calls functions of others.

    Everything takes the joined model as any other, and `split` writes its quantized parts. What was changed
    or left out is noted.

    Args:
        models: files of the parts, each called by its file's name without suffix: its nodes and tensors are
            `PART:NAME`. One file, where only functions are put in: nothing is renamed.
        output: the ONNX file to write.
        functions: files with functions that the models call: ONNX models, or serialised FunctionProtos.
        connect: "PART:INPUT=PART:OUTPUT", what an input reads, or "PART:INPUT=NAME" for an input of the
            whole. An input that is not named reads the output of the same name of another part, or else is
            an input of the whole.

    Returns:
        Parts, inputs, connections and outputs of the whole.

    Raises:
        ModelError: a part cannot be read, parts do not go together, or onnxruntime refuses the whole.
        ConfigError: a part or connection does not exist, or the output cannot be written.
    """
    with notes_once():
        result = joining.join(tuple(models), output, functions=tuple(functions), connect=connect)
        for finding in result.findings:
            note(finding)
    return result


@checks_arguments
def split(model: ModelLike, plan: PlanLike, folder: str | os.PathLike[str]) -> tuple[PartFile, ...]:
    """Write the parts of a joined model as quantized files, by the plan of the whole.

    One after the other they compute what the quantized model of the whole computes, bit for bit. All are
    written, or none. What a person should know of a part is noted.

    Args:
        model: the joined float model, which `join` wrote: path, `onnx.ModelProto` or `onnx_ir.Model`.
        plan: made for it, path or object.
        folder: gets `PART.int8.onnx` for each part, with the inputs and outputs of the part's float file; it
            is made where it is not there.

    Returns:
        Each part with its file, its size in bytes and its findings.

    Raises:
        ModelError: the model was not joined, is not in float32, or onnxruntime refuses a part.
        PlanError: the plan is that of another model. ConfigError: a file cannot be written.
    """
    with notes_once(), opened(model) as path:
        parts = splitting.split(path, plan, folder)
        for part in parts:
            for finding in part.findings:
                note(replace(finding, sentence=f"part {part.part}: {finding.sentence}"))
    return parts

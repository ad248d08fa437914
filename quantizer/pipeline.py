"""The order of the steps, and nothing else: each command of `qprof` is one function here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx_ir as ir

from ..profiles.bodies import hidden_tensors
from ..profiles.checkpoint import remove_progress
from ..profiles.cluster import calibrate_sharded
from ..profiles.errors import ConfigError, ModelError
from ..profiles.glow_yaml import bind_glow, glow_names
from ..profiles.instrument import instrument as instrument_model
from ..profiles.loading import loaded
from ..profiles.profile import DataId, ModelId, Profile
from ..profiles.profiling_function import DOMAIN
from ..profiles.runner import profile_samples
from ..profiles.samples import input_specs, open_samples
from ..profiles.store import load_profile, save_profile
from ..profiles.workers import Data
from .config import DATA_FREE
from .conformity import check_conformity
from .graph import Graph, check_model, index, model_id
from .judge.inference import model_bytes, open_session
from .judge.once import run_once
from .lowering import lower
from .modelfile import has_external_data, load_model, save_model
from .needed import one_with_others
from .plan import Kind, QuantPlan
from .plan_store import load_plan, save_plan
from .planning import open_plan, plan_model, round_plan, rounding_samples, without_samples
from .prepare import narrow_constants, prepare, quantized_operators
from .run_settings import RunSettings
from .seen import as_seen
from .speed.check_speed import SpeedCheck, SpeedDemand, Subject, check_speed
from .targets import Recipe, load_recipe, target_names

Progress = Callable[[int, int | None], None]
"""Called with the number of samples done and, where known, their total."""


@dataclass(frozen=True)
class Summary:
    """What became of the nodes.

    Attributes:
        counts: number of nodes of each kind ("integer", "table", "move", "float", ...), zeros left out.
        float_reasons: reason -> number of nodes that stay float for it, most frequent first.
    """

    counts: Mapping[str, int]
    float_reasons: Mapping[str, int]


@dataclass(frozen=True)
class QuantizeResult:
    """What `quantize` did.

    Attributes:
        plan: the plan that was applied.
        model_path: the file that was written.
        summary: what became of the nodes.
        notes: remarks for the user, such as an opset that was raised.
        float_bytes, quantized_bytes: sizes of the two model files, external data included.
        speed: what was found where speed was asked about.
    """

    plan: QuantPlan
    model_path: Path
    summary: Summary
    notes: tuple[str, ...]
    float_bytes: int
    quantized_bytes: int
    speed: SpeedCheck | None = None


@dataclass(frozen=True)
class PreparedModel:
    """A model file, read and normalised.

    Attributes:
        model: the prepared model.
        graph: its index.
        identity: its fingerprint, with the name of the file.
        notes: remarks of preparation for the user.
        narrow: the type of a model in float16 or bfloat16, which is prepared in float32; None for others.
    """

    model: ir.Model
    graph: Graph
    identity: ModelId
    notes: tuple[str, ...]
    narrow: ir.DataType | None = None


def open_prepared(path: str | Path) -> PreparedModel:
    """Read a float model and normalise it.

    Raises:
        ModelError: it cannot be read, is quantized already, or is instrumented already.
    """
    model = load_model(path)
    found = quantized_operators(model)
    if found:
        raise ModelError(
            f"{path}: this model is quantized already (it has {', '.join(found[:3])}); give the float model"
        )
    if DOMAIN in model.opset_imports:
        raise ModelError(f"{path}: this model is instrumented already; give the original model")
    result = prepare(model)
    return PreparedModel(
        result.model,
        index(result.model),
        model_id(result.model, Path(path).name),
        result.notes,
        result.narrow,
    )


def dump_profile(
    model_path: str | Path,
    data: str | Path,
    output: str | Path | None = None,
    run: RunSettings | None = None,
    *,
    limit: int | None = None,
    format: str = "qprof",
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Profile:
    """Run a model on samples and record what flows through it.

    Args:
        model_path: float ONNX model.
        data: folder of samples, or "module:function" for a Python iterable of feeds.
        output: where to write the profile; None for nowhere.
        run: how to run it; None for the defaults.
        limit: use the first so many samples only.
        format: "qprof", or "glow" for Glow's YAML.
        progress: called after each sample, or each shard.
        note: called with remarks for the user, before the first sample: which tensors cannot be profiled.

    Returns:
        The profile of the prepared model.

    Raises:
        ModelError: the model cannot be read or run. DataError: the samples do not fit it.
        ConfigError: a setting is not allowed.
    """
    run = run or RunSettings()
    keeper = run.keeper
    prepared = open_prepared(model_path)
    if not input_specs(prepared.model):
        raise ModelError(
            f"{model_path}: has no inputs, so there is nothing to calibrate it on; "
            "give the model that computes from data, or keep this one as it is"
        )
    hidden = hidden_tensors(prepared.model)
    if note is not None:
        for name, reason in hidden.items():
            note(f"tensor '{name}' is not profiled: {reason}")
    settings = run.of_model(prepared.graph, hidden)
    if run.sharded:
        profile = calibrate_sharded(
            prepared.model,
            Data(str(data), limit),
            prepared.identity,
            settings,
            workers=run.workers,
            scheduler=run.scheduler,
            progress=progress,
        )
    else:
        samples = open_samples(str(data), input_specs(prepared.model), limit)
        with loaded(prepared.model, settings) as ready:
            profile = profile_samples(ready, samples, prepared.identity, keeper, progress)
    if output is not None:
        if format == "glow":
            save_profile(profile, output, format="glow", names=glow_names(prepared.model))
        else:
            save_profile(profile, output)
    if keeper is not None:
        remove_progress(keeper)
    return profile


def instrument(model_path: str | Path, output: str | Path) -> None:
    """Write the prepared model with a QuantizationProfile node on every floating-point activation.

    Raises:
        ModelError: the model cannot be read.
    """
    save_model(instrument_model(open_prepared(model_path).model), output)


def quantize(
    model_path: str | Path,
    profile_path: str | Path | None,
    output: str | Path,
    *,
    recipe: Recipe | None = None,
    plan_path: str | Path | None = None,
    save_plan_path: str | Path | None = None,
    accept_retrained: bool = False,
    speed: SpeedDemand | None = None,
    data: str | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> QuantizeResult:
    """Write a quantized model from a float model and its profile, or from a plan.

    Args:
        model_path: float ONNX model.
        profile_path: its profile (qprof's or Glow's); not needed with `plan_path`, nor in the modes of
            `config.DATA_FREE`.
        output: where to write the quantized model.
        recipe: settings and target; None for the default target's.
        plan_path: apply this plan, which a person may have edited, instead of making one.
        save_plan_path: write the plan that was applied.
        accept_retrained: take a profile of the same graph with other weights.
        speed: measure the plan that is made against float, and take back to float what is slower on codes;
            None does not. A plan that is given stays as it is.
        data: samples for rounding "gptq", a folder or "module:function"; no other setting needs any.
        limit: the first so many of them; None for all.
        progress: called while the model runs on them.

    Raises:
        ModelError, ProfileError, PlanError, ConfigError, DataError: what is wrong, where, and what to do.
    """
    prepared = open_prepared(model_path)
    found = None
    elements: Mapping[str, float] = {}
    if plan_path is not None:
        planned = open_plan(prepared.model, load_plan(plan_path), prepared.identity, str(plan_path))
    else:
        recipe = recipe or load_recipe()
        samples = rounding_samples(prepared.model, recipe, data, limit)
        profile = Profile(prepared.identity, DataId(), {})
        notes = prepared.notes
        if profile_path is not None:
            profile = read_profile(profile_path, prepared.model, prepared.identity, accept_retrained)
            elements = {name: tensor.count / max(1, profile.data.samples) for name, tensor in profile.items()}
            notes = (*notes, *_missing(profile_path, profile, prepared.graph))
        elif recipe.config.mode not in DATA_FREE:
            raise ConfigError(
                f"{model_path}: mode {recipe.config.mode} needs a profile: make one with qprof dump-profile, "
                f"or use a mode without data ({', '.join(DATA_FREE)})"
            )
        plain = without_samples(recipe)
        planned = plan_model(prepared.model, profile, plain, prepared.identity, notes)
        if speed is not None:
            subject = Subject(
                Path(model_path), prepared.model, prepared.graph, prepared.identity, profile, plain, notes
            )
            planned, found = check_speed(subject, planned, speed)
        if samples is not None:
            planned = round_plan(prepared.model, planned, profile, recipe.target, samples, progress=progress)
    plan = planned.plan
    lowered = lower(planned.model, plan)
    made = lowered.model
    if prepared.narrow is not None:
        made = narrow_constants(made, prepared.narrow)
    remarks = _conforming(made, plan, recipe, str(output))
    external = has_external_data(prepared.model)
    told = _save_checked(made, Path(output), Path(model_path), elements, external)
    more = (*lowered.notes, *remarks, *told)
    plan = replace(plan, notes=tuple(dict.fromkeys([*plan.notes, *more])))
    if save_plan_path is not None:
        save_plan(plan, save_plan_path)
    return QuantizeResult(
        plan,
        Path(output),
        summarize(plan),
        plan.notes,
        model_bytes(Path(model_path)),
        model_bytes(Path(output)),
        found,
    )


def read_profile(
    path: str | Path, model: ir.Model, identity: ModelId, accept_retrained: bool = False
) -> Profile:
    """Return the profile in a file, bound to a prepared model.

    Raises:
        ProfileError: it cannot be read, or belongs to another model.
    """
    profile = load_profile(path)
    if profile.origin == "glow":
        return bind_glow(profile, model, identity)
    check_model(profile.model, identity, str(path), accept_retrained)
    return profile


def _conforming(model: ir.Model, plan: QuantPlan, recipe: Recipe | None, where: str) -> tuple[str, ...]:
    """Hold a written model against its target; a plan whose target is not packaged is held against none."""
    if recipe is None:
        recipe = load_recipe(plan.config.target) if plan.config.target in target_names() else None
    return () if recipe is None else check_conformity(model, recipe.target, f"{where} (not written)")


def _missing(path: str | Path, profile: Profile, graph: Graph) -> tuple[str, ...]:
    """Return a note when the profile, which may be Glow's, lacks activations of the model."""
    profile, inner = as_seen(profile, graph), one_with_others(graph)
    names = [*graph.inputs, *(v.name or "" for node in graph.nodes for v in node.outputs)]
    lacking = [n for n in names if n and graph.is_float(n) and n not in profile and n not in inner]
    if not lacking:
        return ()
    return (f"{Path(path).name} has no entry for {len(lacking)} activations, such as '{lacking[0]}': float",)


def _save_checked(
    model: ir.Model, output: Path, original: Path, elements: Mapping[str, float], external: bool
) -> tuple[str, ...]:
    """Write a model that onnxruntime has loaded and run once: it lies in a folder of its own until then.

    `elements` says how many a sample has of each input, as far as is known; `external`, whether the float
    model has external data.

    Returns:
        A note when it could not be run.

    Raises:
        ModelError: onnxruntime refuses it; nothing is written. ConfigError: there is no such folder.
    """
    try:
        folder = TemporaryDirectory(prefix=".qprof-", dir=output.parent)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}; check the folder") from error
    with folder as made:
        save_model(model, Path(made, output.name), external)
        name = f"{output} (not written)"
        session = open_session(str(Path(made, output.name)), name)
        note = run_once(session, lambda: open_session(str(original), str(original)), name, elements)
        del session  # some systems do not move a file that is open
        # The model last: when it is there, its data is too.
        for file in sorted(Path(made).iterdir(), key=lambda file: file.name == output.name):
            file.replace(output.with_name(file.name))
    return () if note is None else (note,)


def summarize(plan: QuantPlan) -> Summary:
    """Count what became of the nodes, and why those that stay float do."""
    counts = Counter(node.kind.value for node in plan.nodes.values())
    reasons = Counter(node.reason for node in plan.nodes.values() if node.kind is Kind.FLOAT)
    return Summary(
        {kind.value: counts[kind.value] for kind in Kind if counts[kind.value]}, dict(reasons.most_common())
    )

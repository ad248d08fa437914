"""One float graph through all of qprof: profiled, planned, written in five forms, run, and compared.

What is held:

* The prepared model computes what the float model does; the instrumented one the same bits as the prepared.
* Two profiles, and two written models, of the same input are the same bytes.
* A written model has the outputs of the float model: names, types, shapes.
* What a form computes lies about as near to the plan in plain numpy (`reference.plan_interpreter`) as that
  lies to float: a value on the border of two integers may fall to either side in another order of float32
  sums, which is noise of the size of the quantization noise, and a form that computes something else is not.
* No error but a refusal that `REFUSALS` lists, and no file but those that were asked for.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from graph_builder import quiet_session
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.records.store import save_profile
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.operators.table import RULES
from qprof_onnx.quantizer.plan.plan import Kind, PlanOrigin, QuantPlan
from qprof_onnx.quantizer.planning.known import NOTHING, Known
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.planning.plan_model import model_facts, open_plan
from qprof_onnx.quantizer.planning.planner import plan_with_chains
from qprof_onnx.quantizer.plugins.instrument.instrument import instrument
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, open_prepared
from qprof_onnx.quantizer.search.fallback_nodes import with_fallback_nodes
from qprof_onnx.quantizer.targets.config import DATA_FREE
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.machine import int8_kernels_saturate
from qprof_onnx.quantizer.targets.target import Recipe
from reference.plan_interpreter import run_plan

Array = npt.NDArray[Any]
Sample = Mapping[str, Array]
Outputs = dict[str, list[Array]]
"""Output -> one array for each sample."""

EVERYTHING = "everything"
"""A target with an integer kernel of every operator that the table has, for the lowerings' sake."""

# Weights for Arm saturate on x86-64 without VNNI.
IN_ONNXRUNTIME = ("onnxruntime-x86", EVERYTHING, *(() if int8_kernels_saturate() else ("onnxruntime-arm",)))
"""Targets whose facts keep clear of what onnxruntime's optimizations compute wrongly."""

KINDS = ("wrong", "crashed", "leftover", "bytes", "refused")
"""Kinds of findings."""

REFUSALS: Mapping[str, str] = {
    r"does not suit target \w+: opset \d+:": "the float model's opset is newer than the runtime",
    r"no node of the model has this name": "preparation joined or folded all nodes of the type",
    r"No Op registered for|is deprecated in domain_version": "onnxruntime runs operators that ONNX has not",
}
"""What a message says -> why it may refuse a model that onnxruntime runs."""

PREPARED_TOLERANCE = 1e-4
"""Of the root mean square of an output: folding weights rounds them once more."""
HALF_TOLERANCE = 1e-3
"""The same where float16 tensors are float32 in the prepared model: 2^-11 is the rounding of each."""
NEAR = 0.02
"""Difference, over the root mean square of an output, that is below every noise that matters (34 dB)."""
TIMES_NOISE = 1.5
"""Difference of a form from the plan, over that of the plan from float, that borders of integers explain."""


@dataclass(frozen=True)
class Case:
    """A float model, its samples, and how it is quantized: settings and facts replace those of the target.

    With `start_everywhere` memory-bound operators are quantized too, whether or not that pays.
    """

    model: onnx.ModelProto
    samples: Sequence[Sample]
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str = "onnxruntime-x86"
    start_everywhere: bool = False
    forms: Sequence[str] = tuple(FORMS)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """Forms that were run, quantized nodes and their types, allowed refusals, and findings by KINDS."""

    forms: int = 0
    quantized: int = 0
    refused: list[str] = field(default_factory=list)
    findings: list[tuple[str, str]] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)

    def add(self, kind: str, text: str) -> None:
        """Add a finding."""
        self.findings.append((kind, text))


def recipe_of(case: Case, form: str) -> Recipe:
    """Return the settings of a case with a form.

    What is to start everywhere is quantized whatever it is predicted to take: a graph of a few elements would
    stay float, and nothing would be compared.
    """
    regardless = {"cost_model": "off"} if case.start_everywhere else {}
    settings = {**regardless, **case.settings, "form": form}
    facts = {**case.facts, **({"start_everywhere": True} if case.start_everywhere else {})}
    if case.target != EVERYTHING:
        return load_recipe(case.target, settings, facts)
    recipe = load_recipe(None, settings, facts)
    more = {key[1]: ("quantized",) for key, rule in RULES.items() if not rule.unary}
    target = replace(recipe.target, name=EVERYTHING, operators={**more, **recipe.target.operators})
    return replace(recipe, config=replace(recipe.config, target=EVERYTHING), target=target)


def check_case(case: Case, folder: Path) -> Outcome:
    """Take a graph through all of qprof in an empty folder."""
    outcome = Outcome()
    try:
        _check(case, folder, outcome)
    except QprofError as error:
        _refused(outcome, error)
    except Exception:
        outcome.add("crashed", _last_lines())
    return outcome


def _check(case: Case, folder: Path, outcome: Outcome) -> None:
    path = folder / "model.onnx"
    onnx.save(case.model, path)
    expected = run(case.model, case.samples)
    shaken = run(case.model, [_shaken(s) for s in case.samples])
    sensitive = {name: _off(shaken[name], expected[name]) for name in expected}
    again = run(case.model, case.samples, optimized=True)
    for name in expected:
        sensitive[name] = max(sensitive[name], _off(again[name], expected[name]))
    prepared = open_prepared(path)
    computed = run(ir.to_proto(prepared.model), case.samples)
    rounding = PREPARED_TOLERANCE if prepared.narrow is None else HALF_TOLERANCE
    for name, off in _differences(outcome, "prepared", computed, expected).items():
        if off > max(rounding, 20.0 * sensitive[name]):
            outcome.add("wrong", f"prepared: output '{name}' is off by {off:.2g} of its size")
    written = {"model.onnx"}
    profile: Profile | None = None
    if case.model.graph.input:
        instrument(path, folder / "instrumented.onnx")
        written.add("instrumented.onnx")
        instrumented = run(str(folder / "instrumented.onnx"), case.samples)
        for name, arrays in computed.items():
            if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, instrumented[name], strict=True)):
                outcome.add("wrong", f"instrumented: output '{name}' has other bits")
        profile = _profile(path, case, folder, outcome)
        written |= {"0.yaml", "1.yaml", "0.samples.npz", "1.samples.npz"}
    references: list[tuple[QuantPlan, Outputs]] = []
    for form in case.forms:
        subject, floats = (path, prepared, profile), (expected, sensitive)
        _check_form(case, form, subject, floats=floats, references=references, outcome=outcome)
        written |= {f"{form}.onnx", f"{form}.plan.yaml"}
    left = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.name not in written)
    if left:
        outcome.add("leftover", ", ".join(left))


def _profile(path: Path, case: Case, folder: Path, outcome: Outcome) -> Profile:
    samples = [dict(sample) for sample in case.samples]
    profiles = [profile_model(path, samples, run=RunSettings(threads=n)) for n in (1, 2)]
    for number, profile in enumerate(profiles):
        save_profile(profile, folder / f"{number}.yaml")
    if (folder / "0.yaml").read_bytes() != (folder / "1.yaml").read_bytes():
        outcome.add("bytes", "two profiles of the same samples differ")
    return profiles[0]


Subject = tuple[Path, PreparedModel, Profile | None]


def _check_form(
    case: Case,
    form: str,
    subject: Subject,
    *,
    floats: tuple[Outputs, Mapping[str, float]],
    references: list[tuple[QuantPlan, Outputs]],
    outcome: Outcome,
) -> None:
    path, prepared, _ = subject
    try:
        plan = _write(case, form, subject, path.parent / f"{form}.onnx")
    except QprofError as error:
        _refused(outcome, error, form)
        return
    except Exception:
        outcome.add("crashed", f"{form}: {_last_lines()}")
        return
    counted = [n for n, e in plan.nodes.items() if e.kind is not Kind.FLOAT]
    outcome.quantized = max(outcome.quantized, len(counted))
    outcome.operators |= {n.op_type for n in prepared.graph.nodes if n.name in counted}
    if form == case.forms[0]:
        before = (path.parent / f"{form}.onnx").read_bytes()
        _write(case, form, subject, path.parent / f"{form}.onnx")
        if (path.parent / f"{form}.onnx").read_bytes() != before:
            outcome.add("bytes", f"{form}: two written models differ")
    expected, sensitive = floats
    reference = _reference(prepared, plan, case.samples, references)
    for optimized in (False, True) if case.target in IN_ONNXRUNTIME else (False,):
        where = f"{form}{', optimised' if optimized else ''}"
        try:
            found = run(str(path.parent / f"{form}.onnx"), case.samples, optimized=optimized)
        except Exception as error:
            outcome.add("crashed", f"{where}: onnxruntime: {str(error)[:300]}")
            continue
        if reference is None:  # the first form stands for the plan
            reference = found
            references.append((_without_form(plan), found))
        _differences(outcome, where, found, expected)
        if reference is not None:
            _compare(outcome, where, (found, reference, expected), sensitive)
    outcome.forms += 1


def _write(case: Case, form: str, subject: Subject, output: Path) -> QuantPlan:
    path, prepared, profile = subject
    recipe = recipe_of(case, form)
    if recipe.config.mode in DATA_FREE:
        profile = None
    if case.start_everywhere and recipe.config.mode not in DATA_FREE and profile is not None:
        facts = model_facts(prepared, profile, recipe)

        def attempt(known: Known) -> QuantPlan:
            plan = plan_with_chains(facts, known, make_plan)
            return write_quantized(path, None, output, plan=plan).plan

        return with_fallback_nodes(NOTHING, attempt)
    rounds = recipe.config.rounding == "gptq"
    data = [dict(s) for s in case.samples] if rounds else None
    result = write_quantized(path, profile, output, recipe=recipe, data=data)
    return result.plan


def _without_form(plan: QuantPlan) -> QuantPlan:
    """Return a plan that is equal for all forms that mean the same."""
    return replace(plan, config=replace(plan.config, form="qdq"), findings=(), origin=PlanOrigin())


def _reference(
    prepared: PreparedModel,
    plan: QuantPlan,
    samples: Sequence[Sample],
    known: list[tuple[QuantPlan, Outputs]],
) -> Outputs | None:
    """Return what the plan means; None where onnx's evaluator has no operator of the model."""
    neutral = _without_form(plan)
    for other, outputs in known:
        if other == neutral:
            return outputs
    model = open_plan(prepared, plan).model
    main = {node.name for node in model.graph}
    if any(entry.kind is not Kind.FLOAT and name not in main for name, entry in plan.nodes.items()):
        return None  # the interpreter computes subgraphs in float
    outputs: Outputs = {str(v.name): [] for v in model.graph.outputs}
    try:
        for sample in samples:
            tensors = run_plan(model, plan, dict(sample))
            for name, arrays in outputs.items():
                arrays.append(tensors[name].values)
    except Exception:
        return None
    known.append((neutral, outputs))
    return outputs


def _compare(
    outcome: Outcome, where: str, runs: tuple[Outputs, Outputs, Outputs], sensitive: Mapping[str, float]
) -> None:
    found, reference, expected = runs
    for name, arrays in expected.items():
        if arrays[0].dtype.kind != "f" or any(
            a.shape != b.shape for a, b in zip(reference[name], arrays, strict=True)
        ):
            continue
        noise, off = _off(reference[name], arrays), _apart(found[name], reference[name], arrays)
        if off > max(NEAR, TIMES_NOISE * noise, 20.0 * sensitive[name]):
            outcome.add(
                "wrong",
                f"{where}: output '{name}' is off the plan by {off:.2g} of its size, the plan off float by "
                f"{noise:.2g}",
            )


def _differences(outcome: Outcome, where: str, found: Outputs, expected: Outputs) -> dict[str, float]:
    """Return how far each output is off; what has another type or shape becomes a finding."""
    if list(found) != list(expected):
        outcome.add("wrong", f"{where}: outputs {list(found)}, not {list(expected)}")
        return {}
    off = {}
    for name, arrays in expected.items():
        pairs = list(zip(found[name], arrays, strict=True))
        if any(a.dtype != b.dtype for a, b in pairs):
            outcome.add("wrong", f"{where}: output '{name}' is {pairs[0][0].dtype}, not {pairs[0][1].dtype}")
        elif any(a.ndim != b.ndim for a, b in pairs):
            outcome.add(
                "wrong", f"{where}: output '{name}' has shape {pairs[0][0].shape}, not {pairs[0][1].shape}"
            )
        elif all(a.shape == b.shape for a, b in pairs) and pairs[0][1].dtype.kind == "f":
            off[name] = _off(found[name], arrays)
    return off


def _apart(found: Sequence[Array], other: Sequence[Array], size: Sequence[Array]) -> float:
    """Return the root mean square of a difference over that of another tensor."""
    if any(a.shape != b.shape for a, b in zip(found, other, strict=True)):
        return float("inf")
    a, b, c = (np.concatenate([x.astype(np.float64).ravel() for x in xs]) for xs in (found, other, size))
    with np.errstate(all="ignore"):
        square, power = float(np.mean((a - b) ** 2)), float(np.mean(c**2))
    if np.isnan(square):
        return float("inf")
    return (square / power) ** 0.5 if power else (0.0 if square == 0.0 else float("inf"))


def _off(found: Sequence[Array], expected: Sequence[Array]) -> float:
    if expected[0].dtype.kind != "f":
        return 0.0
    return _apart(found, expected, expected)


def _shaken(sample: Sample) -> Sample:
    """Return a sample with other last digits: what a model makes of them is no fault of ours."""
    rng = np.random.default_rng(0)
    return {
        n: (a * (1.0 + 1e-6 * rng.standard_normal(a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a
        for n, a in sample.items()
    }


def run(model: onnx.ModelProto | str, samples: Sequence[Sample], *, optimized: bool = False) -> Outputs:
    """Return the outputs of a model in onnxruntime."""
    session = quiet_session(model, optimized=optimized)
    names = [o.name for o in session.get_outputs()]
    given = {i.name for i in session.get_inputs()}
    runs = [session.run(names, {n: a for n, a in s.items() if n in given}) for s in samples]
    return {name: [r[i] for r in runs] for i, name in enumerate(names)}


def _refused(outcome: Outcome, error: QprofError, form: str = "") -> None:
    text = str(error)
    reason = next((reason for pattern, reason in REFUSALS.items() if re.search(pattern, text)), "")
    if reason:
        outcome.refused.append(reason)
    else:
        outcome.add("refused", f"{form}: {type(error).__name__}: {text}")


def _last_lines() -> str:
    lines = traceback.format_exc().strip().splitlines()
    places = [line.strip() for line in lines if line.strip().startswith("File")]
    return f"{lines[-1][:300]} at {places[-1] if places else ''}"

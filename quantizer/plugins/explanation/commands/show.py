"""`qprof show`: a profile or a plan as a table, and the reasons of a tensor or a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from .....cli.console import document, echo, print_table, ramp_of_terminal
from .....cli.options import EXISTING, MODEL, FileCommand, custom_ops_option, json_option
from .....profiles.base.errors import ConfigError, nearest
from .....profiles.records.drawing import shape_text, small_histogram

if TYPE_CHECKING:
    from .....profiles.records.profile import Profile
    from ....plan.plan import QuantPlan


T = TypeVar("T")


@click.command("show", cls=FileCommand)
@click.argument("file", type=EXISTING, metavar="PROFILE.yaml|PLAN.yaml")
@click.argument("names", nargs=-1, metavar="[NAME|GLOB]...")
@click.option(
    "--model",
    type=MODEL,
    metavar="MODEL.onnx",
    help="For one NAME of a plan: adds the nodes and tensors around it.",
)
@click.option(
    "--profile",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="For one NAME of a plan: adds observed range, clipped fraction and expected noise; needs --model.",
)
@custom_ops_option
@json_option
def command(
    file: Path,
    names: tuple[str, ...],
    *,
    model: Path | None,
    profile: Path | None,
    as_json: bool,
) -> None:
    """Print a profile or a plan, or explain a tensor or node of one.

    For a profile: type, shape, range, fraction of zeros and a small histogram of each tensor, from its
    minimum to its maximum, with logarithmic heights. Ranges of another tool are shown as a profile. For a
    plan: kind and reason of each node, scale and zero point of each tensor. Names or globs choose tensors.
    Programs can read both files as YAML.

    With one NAME of a plan, qprof explains it. For a tensor it prints its parameters; with --model and
    --profile the observed range, the fraction of clipped values and the calibrator; the tensors that
    share its scale, the tensor that set the common range, the nodes that tied them, and the loss of each in
    dB. For a node it prints kind and reason, and the quantization of its inputs and outputs.

    \b
    Examples:
      qprof show profile.yaml '*relu*'
      qprof show plan.yaml '/layer1/*'
      qprof show plan.yaml /layer1/conv/Conv --model model.onnx --profile profile.yaml
    """
    from .....profiles.records.profile import Profile
    from ....plan.documents import read_document
    from ....plan.plan import QuantPlan

    shown = read_document(file)
    if isinstance(shown, QuantPlan) and len(names) == 1 and not is_glob(names[0], shown):
        _explain(file, names[0], model, profile, as_json=as_json)
        return
    if model is not None or profile is not None or as_json:
        raise click.UsageError("--model, --profile and --json explain one name of a plan: give its NAME")
    if isinstance(shown, Profile):
        print_profile(replace(shown, tensors=matching(shown.tensors, names, file)))
    else:
        plan = replace(shown, tensors=matching(shown.tensors, names, file))
        print_plan(plan, with_nodes=not names)


def is_glob(name: str, plan: QuantPlan) -> bool:
    """Whether a word stands for the names that it matches, and is none itself."""
    return any(sign in name for sign in "*?[") and name not in {*plan.tensors, *plan.borders, *plan.nodes}


def _explain(file: Path, name: str, model: Path | None, profile: Path | None, *, as_json: bool) -> None:
    from ..explanation import explain
    from ..text import explanation_text

    explanation = explain(file, name, model, profile)
    echo(document("explanation", 1, explanation) if as_json else explanation_text(explanation))


def matching(tensors: Mapping[str, T], globs: tuple[str, ...], file: Path) -> dict[str, T]:
    """Return the tensors whose name is, or matches, one of `globs`; all if there is none."""
    if not globs:
        return dict(tensors)
    matched: set[str] = set()
    for glob in globs:
        names = {name for name in tensors if name == glob or fnmatchcase(name, glob)}
        if not names:
            raise ConfigError(
                f"{file}: no tensor matches '{glob}'; see 'qprof show {file}'.{nearest(glob, tensors)}"
            )
        matched |= names
    return {name: tensor for name, tensor in tensors.items() if name in matched}


def print_profile(profile: Profile) -> None:
    """Print a heading and a row for each tensor."""
    from .....profiles.records.histogram import Histogram
    from .....profiles.records.profile import describe, is_bound, source_of

    tensors = f"{len(profile)} tensors"
    if not is_bound(profile):
        echo(f"ranges of {source_of(profile)}: {tensors}, by the names of the file")
    elif profile.origin != "qprof":
        echo(f"ranges of {source_of(profile)} for {describe(profile.model)}: {tensors}")
    else:
        by = f", by {profile.tool}" if profile.tool else ""
        noise = f", noise measured on {len(profile.noise)}" if profile.noise else ""
        noise += f", {len(profile.check_samples)} kept" if profile.check_samples else ""
        echo(f"profile of {describe(profile.model)}{by}: {tensors}, {profile.data.samples} samples{noise}")
    for finding in profile.data.findings:
        echo(finding.line)
    for name, output in profile.outputs.items():
        echo(f"{output.sentence(name)}; {output.remedy(name)}")
    has_non_finite = any(t.nan or t.inf for t in profile.values())
    ramp = ramp_of_terminal()
    headers = ["tensor", "dtype", "shape", "minimum", "maximum", "zeros"]
    headers += ["nan", "inf"] if has_non_finite else []
    headers += ["histogram"]
    rows = []
    for name, tensor in profile.items():
        counts_zeros = tensor.count > 0 and isinstance(tensor.histogram, Histogram)  # Glow does not
        row = [name, tensor.dtype, shape_text(tensor.shape), f"{tensor.minimum:.6g}", f"{tensor.maximum:.6g}"]
        row.append(f"{100 * tensor.zeros / tensor.count:.1f}%" if counts_zeros else "-")
        row += [str(tensor.nan), str(tensor.inf)] if has_non_finite else []
        row.append(small_histogram(tensor.histogram, tensor.minimum, tensor.maximum, ramp=ramp))
        rows.append(row)
    numbers = ("minimum", "maximum", "zeros", "nan", "inf")
    print_table(headers, rows, right=numbers)


def print_plan(plan: QuantPlan, *, with_nodes: bool) -> None:
    """Print a heading, the nodes by kind with their reasons, and the parameters of each tensor."""
    from .....profiles.records.profile import describe
    from ....plan.plan import Kind

    by = f", by {plan.tool}" if plan.tool else ""
    config = plan.config
    echo(f"plan for {describe(plan.model)}{by}")
    echo(
        f"target {config.target}, form {config.form}, schema {config.schema}, "
        f"calibrator {config.calibrator}, activations {config.activation_type}, "
        f"weights {config.weight_words}"
    )
    for finding in plan.findings:
        echo(finding.line)
    if with_nodes:
        order = list(Kind)
        nodes = sorted(plan.nodes.items(), key=lambda item: order.index(item[1].kind))
        counts = ", ".join(f"{n} {k}" for k in order if (n := sum(node.kind is k for _, node in nodes)))
        echo(f"\n{len(nodes)} nodes: {counts}")
        rows = [[node.kind.value, name, node.reason] for name, node in nodes]
        print_table(["kind", "node", "reason"], rows)
    echo(f"\n{len(plan.tensors)} tensors")
    rows = []
    for name, params in plan.tensors.items():
        several = f" ({len(params.scale)})" if len(params.scale) > 1 else ""
        scale, zero_point = _span_text(params.scale.tolist()), _span_text(params.zero_point.tolist())
        axis = "" if params.axis is None else str(params.axis)
        rows.append([name, params.qtype.name, scale + several, zero_point, axis])
    print_table(["tensor", "type", "scale", "zero_point", "axis"], rows, right=("axis",))


def _span_text(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.6g}" if low == high else f"{low:.6g} .. {high:.6g}"

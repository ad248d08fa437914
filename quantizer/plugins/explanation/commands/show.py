"""`qprof show`: a profile or a plan as a table, and the reasons of a tensor or a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from .....cli.console import document, echo, result_text
from .....cli.options import EXISTING, MODEL, FileCommand, custom_ops_option, json_option
from .....profiles.base.errors import ConfigError, nearest

if TYPE_CHECKING:
    from ....plan.plan import QuantPlan


T = TypeVar("T")


@click.command("show", cls=FileCommand)
@click.argument("file", type=MODEL, metavar="OUT.onnx|PLAN.yaml|PROFILE.yaml")
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

    OUT.onnx stands for its plan, and with --model for its profile too, in the folder OUT.qprof.
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
      qprof show model.int8.onnx '/layer1/*'
      qprof show model.int8.onnx /layer1/conv/Conv --model model.onnx
    """
    from .....profiles.records.profile import Profile
    from ....api.made_from import found_beside
    from ....plan.documents import read_document
    from ....plan.plan import QuantPlan
    from ....prepare.prepare import file_of

    if file.suffix == ".onnx":
        found = found_beside(file_of(file), None if model is None else file_of(model))
        file, profile = found.plan_file or file, profile or found.profile_file
    shown = read_document(file)
    if isinstance(shown, QuantPlan) and len(names) == 1:
        has_name = names[0] in {*shown.tensors, *shown.borders, *shown.nodes}
        if has_name or not any(sign in names[0] for sign in "*?["):
            _explain(file, names[0], model, profile, as_json=as_json)
            return
    if model is not None or profile is not None or as_json:
        raise click.UsageError("--model, --profile and --json explain one name of a plan: give its NAME")
    chosen: Profile | QuantPlan
    if isinstance(shown, Profile):
        chosen = replace(shown, tensors=matching(shown.tensors, names, file))
    else:
        nodes = {} if names else shown.nodes
        chosen = replace(shown, nodes=nodes, tensors=matching(shown.tensors, names, file))
    echo(result_text(chosen, title=f"{file}: {len(chosen.tensors)} tensors" if names else None))


def _explain(file: Path, name: str, model: Path | None, profile: Path | None, *, as_json: bool) -> None:
    from ..explanation import explain

    explanation = explain(file, name, model, profile)
    echo(document("explanation", 1, explanation) if as_json else result_text(explanation))


def matching(tensors: Mapping[str, T], globs: tuple[str, ...], file: Path) -> dict[str, T]:
    """Return the tensors whose name is, or matches, one of `globs`; all without globs."""
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

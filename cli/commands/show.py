"""`qprof show`: print a profile or a plan as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from ..console import echo
from ..options.documents import chosen
from ..options.files import EXISTING, FileCommand
from ..options.shared import json_option
from ..render.files import of_kind, plan_json, print_plan, print_profile, profile_json


@click.command("show", cls=FileCommand)
@click.argument("file", type=EXISTING, metavar="PROFILE.yaml|PLAN.yaml")
@click.option(
    "--tensor", "globs", multiple=True, metavar="GLOB", help="Only tensors with such names. Repeatable."
)
@click.option(
    "--only",
    type=click.Choice(["outliers", "constant", "heavy-tail"]),
    help="Of a profile: tensors whose range one sample alone widens, of one value, or with long tails.",
)
@json_option
def command(file: Path, globs: tuple[str, ...], only: str | None, as_json: bool) -> None:
    """Print a profile or a plan as a table.

    Of a profile: type, shape, range, share of zeros and a small histogram of each tensor, from its minimum to
    its maximum, with logarithmic heights; of chosen tensors also the samples with the smallest minimum and
    the largest maximum. A file of ranges of another tool is shown as a profile. Of a plan: what becomes of
    each node and why, and scale and zero point of each tensor. --json prints everything that the file holds.

    \b
    Examples:
      qprof show profile.yaml --only outliers
      qprof show plan.yaml --tensor '/layer1/*' --json
    """
    from ...profiles.records.profile import Profile
    from ...quantizer.exchange.profiles import read_document

    found = read_document(file)
    if isinstance(found, Profile):
        tensors = of_kind(chosen(found.tensors, globs, file), only)
        profile = replace(found, tensors=tensors)
        named = bool(globs or only)
        echo(profile_json(profile)) if as_json else print_profile(profile, named)
    else:
        if only is not None:
            raise click.UsageError("--only is for profiles")
        plan = replace(found, tensors=chosen(found.tensors, globs, file))
        echo(plan_json(plan)) if as_json else print_plan(plan, with_nodes=not globs)

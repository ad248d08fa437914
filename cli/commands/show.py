"""`qprof show`: print a profile or a plan as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from ..options.documents import chosen, detect
from ..options.shared import EXISTING, json_option
from ..render.files import plan_json, print_plan, print_profile, profile_json


@click.command("show")
@click.argument("file", type=EXISTING, metavar="PROFILE.yaml|PLAN.yaml")
@click.option(
    "--tensor", "globs", multiple=True, metavar="GLOB", help="Only tensors with such names. Repeatable."
)
@json_option
def command(file: Path, globs: tuple[str, ...], as_json: bool) -> None:
    """Print a profile or a plan as a table.

    Of a profile: type, shape, range, share of zeros and a small histogram of each tensor, from its minimum to
    its maximum, with logarithmic heights. Of a plan: what becomes of each node and why, and scale and zero
    point of each tensor. --json prints everything that the file holds.

    \b
    Examples:
      qprof show profile.yaml
      qprof show plan.yaml --tensor '/layer1/*' --json
    """
    if detect(file) == "profile":
        from ...profiles.records.store import load_profile

        profile = load_profile(file)
        profile = replace(profile, tensors=chosen(profile.tensors, globs, file))
        click.echo(profile_json(profile)) if as_json else print_profile(profile)
    else:
        from ...quantizer.plan.store import load_plan

        plan = load_plan(file)
        plan = replace(plan, tensors=chosen(plan.tensors, globs, file))
        click.echo(plan_json(plan)) if as_json else print_plan(plan, with_nodes=not globs)

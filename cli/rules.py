"""`qprof rules`: the operator reference, printed from the table."""

from __future__ import annotations

import json

import click

from .options import json_option, target_option


@click.command("rules")
@target_option
@json_option
def command(target: str | None, as_json: bool) -> None:
    """Print the operator reference: what becomes of each operator on a target.

    An operator that is not listed stays float, with its reason in the plan.

    \b
    Example:
      qprof rules --target glow
    """
    from ..quantizer.reference import operator_reference
    from ..quantizer.targets import load_recipe
    from .render import print_table

    rows = operator_reference(load_recipe(target).target)
    if as_json:
        click.echo(json.dumps([vars(row) for row in rows], indent=1))
        return
    headers = ["operator", "constraint", "activations", "weight", "bias", "table", "on the target"]
    print_table(
        headers,
        [
            [r.operator, r.constraint, r.activations, r.weight, r.bias, "yes" if r.curve else "", r.target]
            for r in rows
        ],
    )

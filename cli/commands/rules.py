"""`qprof rules`: the operator reference, printed from the table."""

from __future__ import annotations

import click

from ..console import document, echo, print_table
from ..options import FileCommand, json_option, target_option


@click.command("rules", cls=FileCommand)
@target_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown"]),
    default="table",
    help="Plain table, or a Markdown page.",
)
@json_option
def command(target: str | None, form: str, as_json: bool) -> None:
    """Print how each operator is handled on a target.

    An operator that is not listed stays float, with the reason in the plan. --format markdown prints the page
    docs/reference/operators.md, for all targets or the one that is given.

    \b
    Examples:
      qprof rules --target glow
      qprof rules --format markdown > OPERATORS.md
    """
    from ...quantizer.prepare.unfusing import TAKEN_APART
    from ...quantizer.targets.config import QuantConfig
    from ...quantizer.targets.loading import load_recipe
    from ...quantizer.targets.operator_page import markdown_reference, reference_of, taken_apart_text
    from ...quantizer.targets.packaged import target_names
    from ..schemas import Operators

    if form == "markdown" and not as_json:
        names = target_names() if target is None else (target,)
        echo(markdown_reference((load_recipe(name).target for name in names), TAKEN_APART), nl=False)
        return
    recipe = load_recipe(target or QuantConfig.target)
    rows, name = reference_of(recipe.target), recipe.target.name
    if as_json:
        echo(document("operators", 1, Operators(name, rows)))
        return
    headers = ["operator", "output", "activations", "weight", "bias", "look-up table", f"on {name}"]
    print_table(headers, [[*row.facts, row.target] for row in rows])
    echo("\n" + "\n".join(taken_apart_text(TAKEN_APART)))

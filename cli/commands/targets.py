"""`qprof targets`: the runtimes that qprof can quantize for."""

from __future__ import annotations

import click

from ..console import document, echo, print_table
from ..options import FileCommand, json_option


@click.command("targets", cls=FileCommand)
@json_option
def command(as_json: bool) -> None:
    """List the runtimes that qprof can quantize for.

    Each with its default settings; --target auto takes the one of this machine. A target of your own is a
    YAML file like those in configs/, given with --config; qprof schema config prints what it may hold.

    \b
    Example:
      qprof targets --json
    """
    from ...quantizer.targets.config import QuantConfig
    from ...quantizer.targets.loading import load_recipe
    from ...quantizer.targets.machine import processor
    from ...quantizer.targets.packaged import target_names
    from ..schemas import TargetRecord, Targets

    recipes = [load_recipe(name) for name in target_names()]
    here = processor().kind
    if as_json:
        records = tuple(TargetRecord(r.config, r.target, here in r.target.processors) for r in recipes)
        echo(document("targets", 1, Targets(records)))
        return
    rows = [
        [
            recipe.target.name,
            recipe.target.description
            + " (default)" * (recipe.target.name == QuantConfig.target)
            + " (this machine: auto)" * (here in recipe.target.processors),
            recipe.target.verified.title if recipe.target.verified else "",
            recipe.config.activation_type,
            f"{recipe.config.weight_type} {recipe.config.granularity}",
            recipe.config.schema,
            recipe.config.calibrator,
            str(len(recipe.target.operators)),
        ]
        for recipe in recipes
    ]
    headers = ["target", "description", "verified", "activations"]
    headers += ["weights", "schema", "calibrator", "operators"]
    print_table(headers, rows, right=["operators"], folded=["description"])

"""`qprof targets`: the runtimes that qprof can quantize for, operators and kernel times of one of them."""

from __future__ import annotations

from pathlib import Path

import click

from ...profiles.base.extras import OptionalModule
from ..console import document, echo, print_table, progress
from ..options import DATA, NEW, FileCommand, json_option

MEASURING = OptionalModule("--measure", "quantizer.plugins.tune.measure_target")


@click.command("targets", cls=FileCommand)
@click.argument("name", required=False, type=DATA, metavar="[NAME|FILE]")
@click.option(
    "--measure",
    type=NEW,
    metavar="COSTS.json",
    help="Measure the kernel times of NAME on this machine, and write them.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Threads inside an operator; measured times apply to this number.",
)
@json_option
def command(name: str | None, measure: Path | None, threads: int, as_json: bool) -> None:
    """List the runtimes that qprof can quantize for.

    Prints each target with its default settings. --target auto chooses the target of this machine. Your own
    target is a YAML file like those in configs/, passed with --config; qprof schema config prints its keys.
    With NAME, or such a file, prints how the target handles each operator. An operator that is not listed
    stays float; the plan stores the reason.

    With --measure, qprof runs small networks of one operator in float and quantized, with onnxruntime's
    profiler. From these times quantize predicts the time of each node and conversion. It takes a few
    minutes; nothing else should run meanwhile. The target must be for the processor of this machine.

    \b
    Examples:
      qprof targets
      qprof targets glow
      qprof targets onnxruntime-x86 --measure costs.json --threads 2
    """
    if measure is not None:
        if name is None:
            raise click.UsageError("--measure needs the NAME of a target.")
        with progress("measuring", "network") as report:
            table = MEASURING.load().measure_target(name, measure, threads=threads, progress=report)
        points = sum(map(len, table.kernels.values()))
        echo(f"{measure}: {len(table.kernels)} kernels, {points} times, {table.conditions.processor}")
        return
    if name is not None:
        _print_operators(name, as_json=as_json)
        return
    from ...quantizer.targets.config import QuantConfig
    from ...quantizer.targets.loading import load_recipe
    from ...quantizer.targets.machine import processor
    from ...quantizer.targets.packaged import target_names

    recipes = [load_recipe(name) for name in target_names()]
    here = processor().kind
    if as_json:
        records = [
            {"config": one.config, "target": one.target, "this_machine": here in one.target.processors}
            for one in recipes
        ]
        echo(document("targets", 1, {"targets": records}))
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
    print_table(headers, rows, right=["operators"])


def _print_operators(name: str, *, as_json: bool) -> None:
    """Print how each operator is handled on one target."""
    from ...quantizer.prepare.unfusing import TAKEN_APART
    from ...quantizer.targets.loading import load_recipe
    from ...quantizer.targets.operator_reference import reference_of, taken_apart_text

    target = load_recipe(name).target
    rows = reference_of(target)
    if as_json:
        echo(document("operators", 1, {"target": target.name, "operators": rows}))
        return
    headers = ["operator", "output", "activations", "weight", "bias", "look-up table", f"on {target.name}"]
    print_table(headers, [[*row.facts, row.target] for row in rows])
    echo("\n" + "\n".join(taken_apart_text(TAKEN_APART)))

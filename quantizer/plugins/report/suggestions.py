"""Other settings that were tried and make a better model, with a command for each. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...model.folders import quantized_name
from ...plan.plan import QuantPlan
from ...search.attribution import Attribution
from ...search.fixes import MIN_GAIN_DB
from ...search.verdict import Fix, Verdict
from ...targets.loading import options_of_config
from .content import WhatIf

MUCH_FASTER = 1.1
"""Times as fast from which a change is worth a line although it costs quality."""


@dataclass(frozen=True)
class FileNames:
    """How files are named in titles and commands."""

    model: str = ""  # of the files of `qprof quantize`; "" for a file that there is not
    profile: str = ""
    output: str = ""
    # words of the command line that quantized the model and gave it a verdict. Commands to try repeat them,
    # so that what they make gets a verdict as well
    command_line: tuple[str, ...] = ()


NOT_REPEATED = ("-o", "--output", "--report", "--save-plan", "--fix")
"""Options with a value that commands to try do not repeat: the files of the first model stay as they are."""

REPEATABLE = ("--keep-float", "--set")
"""Options that add names to those that the command line has already."""


def tried_changes(verdict: Verdict) -> Iterator[WhatIf]:
    """Yield the fixes of a verdict, which were tried on samples."""
    worst = verdict.worst
    for fix in verdict.fixes:
        gained = None if fix.sqnr is None or verdict.sqnr is None else round(fix.sqnr - verdict.sqnr, 2)
        is_much_faster = (
            fix.speedup is not None
            and verdict.latency is not None
            and fix.speedup >= MUCH_FASTER * verdict.latency.speedup
        )
        if gained is not None and gained < 0.0 and not is_much_faster:
            continue
        kept = fix.settings.get("keep_float", ())
        nodes = kept if isinstance(kept, tuple) else ()
        if nodes:
            title = _kept_words(nodes)
        else:
            title = "; ".join(_setting_words(name, value) for name, value in fix.settings.items())
        yield WhatIf(
            title=title,
            command="",
            output="" if worst is None else worst.output,
            sqnr=fix.sqnr,
            gained=gained,
            speedup=fix.speedup,
            nodes=nodes,
            options=fix.options,
        )


def run_changes(found: Attribution) -> Iterator[WhatIf]:
    """Yield the float nodes with which the outputs of a plan held in a run."""
    after = found.held[found.output].sqnr if found.output in found.held else None
    gained = None if after is None or found.sqnr is None else round(after - found.sqnr, 2)
    if found.enough and (gained is None or gained >= MIN_GAIN_DB):
        yield WhatIf(
            title=_kept_words(found.enough),
            command="",
            output=found.output,
            sqnr=after,
            gained=gained,
            speedup=None,
            nodes=found.enough,
            options=Fix({"keep_float": found.enough}).options,
            measured_on=found.samples,
        )


def _kept_words(nodes: tuple[str, ...]) -> str:
    return "Keep one node float" if len(nodes) == 1 else f"Keep {len(nodes)} nodes float"


def _setting_words(name: str, value: str | float | tuple[str, ...]) -> str:
    """Return a setting in words."""
    if name == "calibrator":
        return f"Calibrate with {value}"
    if name == "keep_16bit" and isinstance(value, tuple):
        return f"Activations of {'one node' if len(value) == 1 else f'{len(value)} nodes'} in 16 bits"
    return f"Setting {name}: {value}"


def with_commands(plan: QuantPlan, names: FileNames, changes: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
    """Return changes with the commands that make them, each into separate files."""
    return tuple(
        replace(change, command=command(plan, names, change.options, number))
        for number, change in enumerate(changes, 1)
    )


def command(plan: QuantPlan, names: FileNames, added_options: Sequence[str], number: int) -> str:
    """Return the command that makes a plan again with more options, into a file like model.try1.int8.onnx."""
    path = Path(names.output or quantized_name(names.model))
    stem, ending = path.stem, path.suffix
    if stem.endswith(".int8"):
        stem, ending = stem.removesuffix(".int8"), f".int8{ending}"
    output = str(path.with_name(f"{stem}.try{number}{ending}"))
    overruled = {word for word in added_options if word.startswith("--")}
    overruled |= {f"{word.partition('=')[0]}=" for word in added_options if "=" in word}  # of --set
    if names.command_line:
        left_out = {*overruled.difference(REPEATABLE), *NOT_REPEATED}
        repeated = _without_options(names.command_line, left_out)
        return shlex.join(["qprof", "quantize", *repeated, "-o", output, *added_options])
    words = ["qprof", "quantize", names.model, "--profile", names.profile, "-o", output]
    return shlex.join([*words, *options_of_config(plan.config, overruled), *added_options])


def _without_options(command_line: Sequence[str], left_out: Collection[str]) -> Iterator[str]:
    """Yield the words of a command line without some of its options and their values, and without --json."""
    words = iter(command_line)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in left_out:
            if not equals:
                next(words, None)
        elif name != "--json" and not (word.startswith("-o") and "-o" in left_out):
            yield word

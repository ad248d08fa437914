"""`--report DIR` of commands: the option, and the report of a result that is written for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...console import arguments, tell
from ..files import REPORT
from ..groups import option

if TYPE_CHECKING:
    from ....quantizer.report.content import Report


_KEY = "qprof.report"


def _note(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    ctx.meta[_KEY] = value


report_option = option(
    "--report",
    group="Files",
    type=REPORT,
    metavar="DIR",
    expose_value=False,
    callback=_note,
    help="Write a report: report.html, report.md, junit.xml and report.json.",
)
"""The folder is kept in the context, where `report_quantization` and its like look for it."""


def _folder() -> Path | None:
    folder: Path | None = click.get_current_context().meta.get(_KEY)
    return folder


def write_and_tell(report: Report, folder: Path) -> None:
    """Write the files of a report, and say on stderr where it is."""
    report.save(folder)
    tell(f"report: {folder / 'report.html'}")


def report_quantization(result: Any, model: Path, profile: Path | None, recipe: Any) -> None:
    """Write the report of a quantization, if one was asked for."""
    if (folder := _folder()) is not None:
        from ....quantizer.report.reporting import quantization_report

        write_and_tell(quantization_report(result, model, profile, recipe, given=_shown_arguments()), folder)


def _shown_arguments() -> tuple[str, ...]:
    """Return the words of the command line without what is secret in URLs: reports are passed on."""
    return tuple(_shown_word(word) for word in arguments())


def _shown_word(word: str) -> str:
    from ....profiles.samples.storage import is_url, shown_location

    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{shown_location(value)}" if is_url(value) else word


def report_evaluation(result: Any, model: Path, quantized: Path) -> None:
    """Write the report of an evaluation, if one was asked for."""
    if (folder := _folder()) is not None:
        from ....quantizer.report.reporting import evaluation_report

        report, remarks = evaluation_report(result, model, quantized)
        for remark in remarks:
            tell(f"note: {remark}")
        write_and_tell(report, folder)


def report_drift(result: Any) -> None:
    """Write the report of a comparison of profiles, if one was asked for."""
    if (folder := _folder()) is not None:
        from ....quantizer.report.reporting import drift_report

        write_and_tell(drift_report(result), folder)


def report_tuning(result: Any, model: Path, profile: Path, files: Any) -> None:
    """Write the report of a tuning, if one was asked for; the plan is that of --save-plan."""
    if (folder := _folder()) is not None:
        from ....quantizer.plan.store import load_plan
        from ....quantizer.report.reporting import tuning_report

        plan = None if files.plan is None or not Path(files.plan).exists() else load_plan(files.plan)
        write_and_tell(tuning_report(result, model, profile, plan), folder)

"""What the command line prints: results, remarks, tables, JSON and progress; and the streams that it uses."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ..profiles.base.errors import IN_COMMAND, QprofError, escaped
from ..profiles.base.extras import OptionalModule
from ..profiles.base.findings import Code, Finding, Severity, gravest_first, of_severity, rest_text
from ..profiles.base.json_values import to_jsonable
from ..profiles.base.presentation import Presented
from ..profiles.base.progress import counted, plain_lines, rate
from ..profiles.base.tool import LOGGER, Progress
from ..profiles.records.drawing import ASCII, BLOCKS

REPORTER = OptionalModule("the report", "quantizer.plugins.report.report")
"""Has the reports of the results of commands, for --report."""

NOTES = 2
"""Notes without a remedy that a command prints while it runs: the first ones."""


@dataclass
class CommandRun:
    """One run of a command, as far as its parts have to know of each other."""

    arguments: tuple[str, ...] = ()  # words of the command line after the name of the command
    verbose: bool = False  # whether to print all that the command has to tell
    details: frozenset[Code] = frozenset()  # findings that this command prints only with --verbose
    told: list[Finding] = field(default_factory=list)  # findings of this run, each once, printed or not
    # those of them that are notes and are counted at the end
    unprinted: list[Finding] = field(default_factory=list)
    models_read: list[Path] = field(default_factory=list)  # what the command reads, see `FilesRead`
    files_read: list[Path] = field(default_factory=list)
    data_read: list[Path | str] = field(default_factory=list)
    # files that are there already in a folder that the command writes into
    files_in_folder: list[Path] = field(default_factory=list)


def current_run() -> CommandRun:
    """Return the run of click's current command; without one, a new run, which prints all."""
    context = click.get_current_context(silent=True)
    if context is None:
        return CommandRun(verbose=True)
    run: CommandRun = context.meta.setdefault("qprof.run", CommandRun())
    return run


class StdoutError(QprofError):
    """A result cannot be printed."""


def echo(text: str, *, nl: bool = True) -> None:
    """Print a result on stdout."""
    try:
        click.echo(escaped(text, lines=True), nl=nl)
    except BrokenPipeError:
        raise
    except OSError as problem:
        message = f"standard output: cannot be written: {problem.strerror or problem}; send it elsewhere"
        raise StdoutError(message) from problem


def tell(message: str, *, lines: bool = False) -> None:
    """Print an error, a note or progress on stderr; if that fails, nobody reads it."""
    try:
        click.echo(escaped(message, lines), err=True)
    except (OSError, ValueError):
        abandon(sys.stderr)


def tell_findings(findings: Iterable[Finding]) -> None:
    """Print findings on stderr, each once and the gravest first."""
    run = current_run()
    for finding in gravest_first(findings):
        if finding in run.told or (finding.code in run.details and not run.verbose):
            continue
        run.told.append(finding)
        is_first = len(of_severity(run.told, Severity.NOTE)) <= NOTES
        if run.verbose or finding.remedy or finding.severity is not Severity.NOTE or is_first:
            tell(_line(finding, run.verbose))
        else:
            run.unprinted.append(finding)


def finding_lines(findings: Iterable[Finding], *, verbose: bool = False, width: int = 10) -> list[str]:
    """Return findings as printed lines, the gravest first: "note: opset raised".

    A cause, and the result of a gate, are facts of the result, after their names in a column of some width.
    """
    return [
        _line(one, verbose) if one.label in {*Severity} else f"{one.label:{width}} {one.text}"
        for one in gravest_first(findings)
    ]


def result_lines(findings: Iterable[Finding], *, verbose: bool, width: int = 10) -> list[str]:
    """Return the printed findings of a result: the first note, and the graver ones."""
    run = current_run()
    each = gravest_first(one for one in findings if verbose or one.code not in run.details)
    rest = () if verbose else of_severity(each, Severity.NOTE)[1:]
    run.unprinted += [note for note in rest if note not in run.told]
    return finding_lines((one for one in each if one not in rest), verbose=verbose, width=width)


def _line(finding: Finding, verbose: bool) -> str:
    """Return the line of a finding, with its code if all is printed."""
    return f"{finding.label}: {finding.coded_text}" if verbose else finding.line


def tell_unprinted_notes() -> None:
    """Print at the end of a command the one unprinted note, or the kinds and numbers of several.

    With --verbose it prints the seconds of all stages.
    """
    run = current_run()
    if run.verbose:
        from ..profiles.base.seconds import seconds_text

        tell(f"seconds of processor (calls): {seconds_text()}")
    rest = gravest_first(run.unprinted)
    if len(rest) == 1:
        tell(_line(rest[0], run.verbose))
    elif rest:
        tell(f"note: {rest_text(rest)}")


class NotesHandler(logging.Handler):
    """Prints the findings of the library on stderr, each once, and tracebacks of steps left out."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a finding that was not printed before."""
        finding = getattr(record, "finding", None)
        if record.exc_info:
            tell(self.format(record), lines=True)
        elif finding is None:
            tell(record.getMessage())
        else:
            tell_findings([finding])


@contextmanager
def printing_notes(debug: bool = False) -> Iterator[None]:
    """Print the findings of the library (`note`), and name options in messages, while a command runs."""
    handler, propagated, level = NotesHandler(), LOGGER.propagate, LOGGER.level
    in_command = IN_COMMAND.set(True)
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    if debug:
        LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        IN_COMMAND.reset(in_command)
        LOGGER.removeHandler(handler)
        LOGGER.propagate = propagated
        LOGGER.setLevel(level)


def check_streams() -> str | None:
    """Prepare the streams before any work; return an error if stdout is closed, else None."""
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    return "error: standard output is closed; send it to a file or a pipe" if sys.stdout is None else None


def abandon(stream: Any) -> None:
    """Discard the rest of a stream: Python writes it once more at its exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def save_report(report: Any, folder: Path) -> None:
    """Write the files of a report, and print on stderr its path and the number of samples in it."""
    report.save(folder)
    shown = f", which shows {report.shown_samples} of the samples" if report.shown_samples else ""
    tell(f"report    {folder / 'report.html'}{shown}")


# ---------------------------------------- tables and documents


def result_text(result: Presented, *, title: str | None = None, rows: int | None = None) -> str:
    """Return a result for people: title (None: its headline), facts, tables and findings.

    Without --verbose a table has `rows` rows at most, if that is not None.
    """
    shown, verbose = result.presentation(), current_run().verbose
    lines = [result.headline()] if title is None else [title] if title else []
    width = max([10, *(len(name) for name, _ in shown.facts)])
    lines += [f"{name:{width}} {text}" for name, text in shown.facts]
    for one in shown.tables:
        listed = one.rows if verbose else one.rows[:rows]
        if listed:
            cells = [[escaped(cell) for cell in row] for row in (one.header, *listed)]
            lines += ["", *table(cells, left=range(one.left))]
        if (more := len(one.rows) - len(listed)) > 0:
            lines.append(f"... and {more} more: --verbose")
    told = result_lines(shown.findings, verbose=verbose, width=width)
    lines += ["", *told] if told and shown.tables else told
    text = "\n".join(lines)
    return text if _has_blocks() else text.translate(str.maketrans(BLOCKS, ASCII))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print rows under headers; the columns named in `right` are aligned to the right."""
    echo(plain_table(headers, rows, right))


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return the table as text: a line of headers, one line for each row, columns two blanks apart."""
    left = [i for i, header in enumerate(headers) if header not in right]
    return "\n".join(table([headers, *([escaped(cell) for cell in row] for row in rows)], left))


def _has_blocks() -> bool:
    """Whether the output's encoding has the characters of small histograms."""
    try:
        BLOCKS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> Iterator[str]:
    """Yield the rows in columns: those of `left` aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def document(name: str, version: int, result: object, **more: Any) -> str:
    """Return a result, a dataclass or a mapping, as one JSON object; `more` are keys besides its fields.

    `version` is raised when a key changes its meaning or goes; a new key does not raise it.
    """
    fields = to_jsonable(result)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(result).__name__} is not a record")
    return json.dumps(
        {"format": format_of(name, version), **fields, **to_jsonable(more)}, indent=2, allow_nan=False
    )


def format_of(name: str, version: int) -> str:
    """Return the value of the key `format` of a document."""
    return f"qprof-{name}/{version}"


# ---------------------------------------- progress


@contextmanager
def progress(task: str, unit: str = "sample") -> Iterator[Progress]:
    """Yield the function that a run calls after each of its units; `task` names it, as in "profiling"."""
    if not sys.stderr.isatty():
        yield plain_lines(task, tell, unit=unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}, {task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    start = time.monotonic()
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task(task, total=None, count="", rate="starting")

        def report(done: int, total: int | None) -> None:
            speed = rate(done, time.monotonic() - start)
            bar.update(row, completed=done, total=total, count=counted(done, total, unit), rate=speed)

        yield report


class Stages:
    """The stages of a command, each with its progress; one that begins ends the one before."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._shown: Progress | None = None

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __call__(self, name: str) -> Progress:
        """Begin a stage, and return a function that is called after each of its units."""
        self._end()
        unit = "fix" if name == "trying" else "sample"
        self._shown = self._open.enter_context(progress(name, unit))

        def report(done: int, total: int | None) -> None:
            if self._shown is None:  # it ended for a finding
                self._shown = self._open.enter_context(progress(name, unit))
            self._shown(done, total)

        return report

    def note(self, finding: Finding) -> None:
        """Print a finding, and not into the bar of a stage."""
        self._end()
        tell_findings([finding])

    def _end(self) -> None:
        self._open.close()
        self._shown = None

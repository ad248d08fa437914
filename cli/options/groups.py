"""Options under headings in `--help`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .files import FileCommand

F = TypeVar("F", bound=Callable[..., Any])

GROUPS = ("Basic", "Output format", "Calibration and precision", "Quality", "Speed", "Files")
"""The headings, in the order of help; options without one are listed under Options, after them."""


class GroupedOption(click.Option):
    """An option that knows its heading."""

    def __init__(self, *arguments: Any, group: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group = group


class GroupedCommand(FileCommand):
    """A command whose help lists its options under their headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading that has options."""
        for heading in (*GROUPS, ""):
            options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
            records = [p.get_help_record(ctx) for p in options if _heading(p) == heading]
            rows = [record for record in records if record is not None]
            if rows:
                with formatter.section(heading or "Options"):
                    formatter.write_dl(rows)


def _heading(parameter: click.Parameter) -> str:
    return parameter.group if isinstance(parameter, GroupedOption) else ""


def option(*names: str, group: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator that adds an option under a heading; otherwise as `click.option`."""
    assert group in GROUPS
    return click.option(*names, cls=GroupedOption, group=group, **settings)


def option_list(*added: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return the decorator that adds several options, in the order of help."""

    def add(function: F) -> F:
        for one in reversed(added):
            function = one(function)
        return function

    return add

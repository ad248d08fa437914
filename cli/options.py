"""The options of the commands: made from the records that describe them, and the few that no record has.

`record_options(Gate)` adds an option for each described field of a record (`profiles.base.options`). A field
that the user does not give is not passed to the command: only the records contain defaults. Every option that
names a file declares whether it is read or written, so that a command refuses, before any work, to overwrite
its inputs (`FileCommand`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click
from click.types import StringParamType

from ..profiles.base.errors import ConfigError, nearest_option, nearest_path
from ..profiles.base.extras import OptionalModule
from ..profiles.base.options import Group, Option, options_of
from ..quantizer.api.options import PRECISIONS, settings_of, settings_with
from ..quantizer.evaluation.options import Gate, Judge
from ..quantizer.targets.config import BLOCK_FORMATS, QuantConfig
from .console import REPORTER, current_run, echo, tell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ..quantizer.targets.target import Recipe

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound="DataclassInstance")

GROUPS: tuple[Group, ...] = get_args(Group)
"""The headings, in the order of help; options without one are listed under Options, after them."""

# ---------------------------------------- what an option may name


class FileRead(click.Path):
    """A file that is read."""

    def __init__(self, *, is_model: bool = False, is_truth: bool = False) -> None:
        super().__init__(exists=True, dir_okay=is_truth or is_model, path_type=Path)
        self.is_model = is_model
        self.is_truth = is_truth

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; for a folder of a model, that of the model."""
        table = os.fspath(value).rpartition(":")[0] if self.is_truth else ""
        if table and not os.path.exists(value) and os.path.exists(table):
            super().convert(table, param, ctx)
            current_run().files_read.append(Path(table))
            return Path(value)
        if not os.path.lexists(value):
            name = f"{param.opts[0]}: " if isinstance(param, click.Option) else ""
            what = "no such file or folder" if self.dir_okay else "no such file"
            path_text = os.fspath(value)
            raise ConfigError(f"{name}{path_text}: {what}; check the path.{nearest_path(path_text)}")
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        if self.is_model and path.is_dir():
            from ..quantizer.model.folders import model_in

            path = model_in(path)
        if self.is_model and any("\ud800" <= character <= "\udfff" for character in os.fspath(path)):
            raise ConfigError(f"{path}: its name is not UTF-8, and onnx cannot open it; rename it")
        run = current_run()
        if self.is_model:
            run.models_read.append(path)
        elif path.is_dir():
            run.data_read.append(path)
        else:
            run.files_read.append(path)
        return path


class FileWritten(click.Path):
    """A file that is written, or kept up to date: it must not be one that the command reads."""

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; ConfigError if no file can have this name (`destination`)."""
        from ..profiles.base.output_files import destination

        destination(value)  # while a slash at the end is still there
        return super().convert(value, param, ctx)


class FolderWritten(click.Path):
    """A folder that files of these names are written into; it is made if it is not there."""

    def __init__(self, names: Sequence[str], plugin: OptionalModule | None = None) -> None:
        super().__init__(file_okay=False, readable=False, path_type=Path)
        self.names, self.plugin = names, plugin

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; ConfigError if the files cannot be written there, or the plug-in is missing."""
        from ..quantizer.model.output_paths import FilesRead, check_outputs

        if self.plugin is not None and param is not None:
            self.plugin.check(max(param.opts, key=len))
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        files = [path / name for name in self.names]
        check_outputs(files, FilesRead())
        current_run().files_in_folder.extend(file for file in files if file.exists())
        return path


class DataRead(StringParamType):
    """A folder of samples, or "module:function" of samples or of a metric."""

    name = "data"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name of the folder or function."""
        current_run().data_read.append(value)
        return super().convert(value, param, ctx)


class RecipeRead(StringParamType):
    """A built-in recipe of preprocessing, or the file of one, which is read."""

    name = "recipe"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name of the recipe or of its file."""
        if os.path.isfile(value):
            current_run().files_read.append(value)
        return super().convert(value, param, ctx)


class FiniteNumber(click.FloatRange):
    """A number, between limits if it has some, and neither NaN nor infinite."""

    name = "number"

    def _describe_range(self) -> str:
        """Return the limits for help; click would write None for those that there are not."""
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail with a sentence for another value."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not finite; give a number, or leave the option out", param, ctx)
        return float(number)


class Quantity(StringParamType):
    """A number with a unit or a sign of percent."""

    name = "quantity"

    def __init__(self, read: Callable[[str], float | int], examples: str) -> None:
        """Take the reader of its text, which raises ValueError, and examples for the message."""
        self.read, self.examples = read, examples

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; fail with a sentence for another value."""
        try:
            number = self.read(str(value).strip().lower())
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"'{value}' is not understood; write it like {self.examples}", param, ctx)
        return number


def _bytes(text: str, units: Mapping[str, int]) -> float:
    """Return a number of bytes, from 1 to below 2**60, of a text with a unit in small letters."""
    unit = max((unit for unit in units if text.endswith(unit)), key=len)
    count = float(text.removesuffix(unit)) * units[unit]
    if not 1.0 <= count < 2.0**60:
        raise ValueError(text)
    return count


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)


class Name(StringParamType):
    """One of the library's names for a choice, in help and completion."""

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the names as in "[minmax|percentile]"."""
        return f"[{'|'.join(self.names())}]"


EXISTING = FileRead()
TRUTH = FileRead(is_truth=True)
MODEL = FileRead(is_model=True)
NEW = FileWritten()
REPORT = FolderWritten(("report.html", "report.md", "junit.xml", "report.json"), REPORTER)
DATA = DataRead()
_DECIMAL = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
SIZE = Quantity(lambda text: _bytes(text, _DECIMAL), "3000000, 500kB or 1.5MB, not in percent")
"""Size of a file, in bytes."""
RECIPE = RecipeRead()

# ---------------------------------------- commands and help


class Command(click.Command):
    """A command whose help has -h and --help, also when it is printed without the group that it is of."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the words that ask for help."""
        return ["-h", "--help"]


class FileCommand(Command):
    """A command that refuses, before any work, to write over its inputs; and has --verbose."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(
            GroupedOption(
                ["--verbose"],
                group="Files",
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=self._be_verbose,
                help="Print all findings with codes, reasons, and seconds by stage.",
            )
        )

    def _be_verbose(self, ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
        current_run().verbose = wanted

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line, and store them."""
        current_run().arguments = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            given = list(current_run().arguments)  # of `args` the parser has taken some
            words = self._with_settings(given)
            if words != given:
                return super().parse_args(ctx, words)
            known = [name.lstrip("-") for one in self.params for name in one.opts if name[0] == "-"]
            near = nearest_option(error.option_name.lstrip("-"), known).replace(" '", " '--")
            raise click.UsageError(f"No such option '{error.option_name}'.{near}", ctx) from None

    def _with_settings(self, args: Sequence[str]) -> list[str]:
        """Return words in which an option that is only a setting became --set, with a note for each."""
        taken = next((set(one.rare) for one in self.params if isinstance(one, SetOption)), None)
        if taken is None:
            return list(args)
        taken |= {field.name for field in fields(QuantConfig)}
        known = {option for one in self.params for option in (*one.opts, *one.secondary_opts)}
        words, rest = list[str](), list(args)
        while rest:
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            setting = name.removeprefix("--").replace("-", "_")
            if not name.startswith("--") or name in known or setting not in taken:
                words.append(word)
                if word == "--":
                    break
                continue
            if not equals and rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            words += ["--set", f"{setting}={value}"]
            tell(f"note: {name} is a setting now: --set {setting}={value or 'VALUE'}")
        return words + rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, if its outputs can be written."""
        run = current_run()
        outputs = [p for p in self.params if isinstance(p.type, FileWritten)]
        paths = [path for p in outputs if (path := ctx.params.get(p.name or "")) is not None]
        paths += run.files_in_folder
        if paths:
            from ..quantizer.model.output_paths import FilesRead, check_outputs

            read = FilesRead(tuple(run.models_read), tuple(run.files_read), tuple(run.data_read))
            check_outputs(paths, read)
        return super().invoke(ctx)


class GroupedOption(click.Option):
    """An option with the heading under which help lists it."""

    def __init__(self, *arguments: Any, group: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group = group


class GroupedCommand(FileCommand):
    """A command whose help lists the options of every day on one screen, and all with --help-all."""

    def __init__(self, *arguments: Any, everyday: Collection[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.everyday = tuple(everyday)
        if self.everyday:
            self.params.append(
                GroupedOption(
                    ["--help-all"],
                    group="Basic",
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=self._show_all,
                    help="Show all options, and exit.",
                )
            )

    def _show_all(self, ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            everyday, self.everyday = self.everyday, ()
            try:
                text = self.get_help(ctx)
            finally:
                self.everyday = everyday
            echo(text)
            ctx.exit()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of every day, or a section for each heading that has options."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        if self.everyday:
            by_name = {p.name: p for p in options}
            everyday = [by_name[name] for name in (*self.everyday, "help_all")]
            rows = [record for p in everyday if (record := _short_record(p, ctx)) is not None]
            with formatter.section("Options"):
                formatter.write_dl(rows)
            rest = len(options) - len(everyday)
            formatter.write_paragraph()
            formatter.write(f"{rest} more options: {ctx.command_path} --help-all\n")
            return
        for heading in (*GROUPS, ""):
            named = [p for p in options if getattr(p, "group", "") == heading]
            rows = [record for p in named if (record := p.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(heading or "Options"):
                    formatter.write_dl(rows)


MAX_EVERYDAY_HELP = 60
"""Characters up to which a help text is not cut on the screen of every day."""


def _short_record(parameter: click.Parameter, ctx: click.Context) -> tuple[str, str] | None:
    """Return an option and the beginning of its help, without details."""
    record = parameter.get_help_record(ctx)
    if record is None or parameter.name in ("help", "help_all"):
        return record
    text = (parameter.help or "").partition("  [")[0]
    for mark in (". ", "; ", " (", ": ", ", "):
        if len(text) > MAX_EVERYDAY_HELP and text.find(mark) > 12:
            text = text[: text.find(mark)]
    names = record[0] if len(record[0]) < 40 else f"{record[0].split(' [')[0]} NAME"
    return names, text.rstrip(".") + "." + ("  [required]" if parameter.required else "")


def option(*names: str, group: Group | Literal[""], **settings: Any) -> Callable[[F], F]:
    """Return the decorator that adds an option under a heading, with the arguments of `click.option`."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


def option_list(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return the decorator that adds several options, in the order of help."""

    def add(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add


# ---------------------------------------- options from records


def _targets() -> Iterable[str]:
    from ..quantizer.targets.packaged import target_names

    return (*target_names(), "auto")


_TAKES: Mapping[str, Any] = {
    "file": EXISTING,
    "new file": NEW,
    "truth": TRUTH,
    "data": DATA,
    "recipe": RECIPE,
    "size": SIZE,
    "share": Quantity(_share, "1% or 0.01"),
    "points": Quantity(lambda text: float(text.removesuffix("%")), "0.5"),
}


def _reading(field: Option) -> dict[str, Any]:
    """Return the arguments of click that convert the text of an option to the value of its field."""
    if field.kind is bool:
        return {"is_flag": True, "default": None}
    shown = {"metavar": field.metavar or None}
    if field.takes:
        return {**shown, "type": _TAKES[field.takes]}
    if field.kind is tuple:
        return {**shown, "multiple": True}
    if field.name == "target":
        return {**shown, "type": Name(_targets)}
    if field.words:
        return {**shown, "type": Name(partial(tuple, field.words))}
    if field.kind is int:
        return {**shown, "type": int if field.least is None else click.IntRange(min=int(field.least))}
    return {**shown, "type": FiniteNumber(min=field.least)} if field.kind is float else shown


def record_options(
    record: type, *names: str, without: Collection[str] = (), prefix: str = "", shows_defaults: bool = True
) -> Callable[[F], F]:
    """Return the decorator that adds the options of a record. One that is not given is None, or ()."""
    fields, options = options_of(record), []
    for field in (fields[name] for name in names or fields if name not in without and fields[name].flag):
        text = field.description + (" Repeatable." if field.kind is tuple else "")
        if shows_defaults and field.default not in (None, False, (), ""):
            text += f"  [default: {field.default}]"
        shown = {"group": field.group, "help": text, **_reading(field)}
        options.append(option(field.flag, prefix + field.name, **shown))
    return option_list(*options)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def record_of(record: R, options: Mapping[str, Any]) -> R:
    """Return a record of options with those that the user gave."""
    from ..quantizer.api.keywords import with_keywords

    return with_keywords("options", record, given_options(options))


def take_limits(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `Gate` out of `options`, and return the given ones by the names of its fields."""
    return given_options({name: options.pop(f"gate_{name}", None) for name in options_of(Gate)})


# ---------------------------------------- options of several commands


def _load_libraries(ctx: click.Context, parameter: click.Parameter, libraries: tuple[Path, ...]) -> None:
    if libraries:
        from ..profiles.runtime.providers import load_custom_operators

        load_custom_operators(*libraries)


custom_ops_option = option(
    "--custom-ops",
    group="Basic",
    type=EXISTING,
    multiple=True,
    metavar="LIB",
    expose_value=False,
    callback=_load_libraries,
    help="Library of custom operators to load; it is code and runs with your permissions. Repeatable.",
)

model_argument = option_list(custom_ops_option, click.argument("model", type=MODEL, metavar="MODEL.onnx"))
"""Add MODEL.onnx, and --custom-ops, whose libraries are loaded before the command begins."""

preprocess_option = record_options(Judge, "preprocess")
data_option = option_list(
    option(
        "--data",
        group="Basic",
        required=True,
        type=DATA,
        metavar="DATA",
        help="Samples: folder, file or URL (s3://...) of pictures, text, sound, rows or arrays; "
        "FILE.py:FUNCTION; or random:N.",
    ),
    preprocess_option,
    record_options(Judge, "limit"),
)
"""Add --data, --preprocess and --limit."""

labels_option = record_options(Judge, "labels")
no_latency_option = option(
    "--no-latency",
    "latency",
    group="Speed",
    is_flag=True,
    default=None,
    callback=lambda ctx, parameter, wanted: False if wanted else None,
    help="Do not measure latency.",
)
report_option = option(
    "--report",
    group="Files",
    type=REPORT,
    metavar="DIR",
    help="Write a report: report.html, report.md, junit.xml and report.json.",
)
json_option = option("--json", "as_json", group="Files", is_flag=True, help="Print the result as JSON.")

RARE = frozenset(
    {"threads", "runtime", "provider", "scored_output", "class_axis", "budget", "check_outputs"}
    | {"keep_samples", "min_sqnr", "min_speedup", "min_score"}
)
"""Fields that commands with --set take by it, and not by an option of their own."""


class SetOption(GroupedOption):
    """--set, whose lines are settings of `QuantConfig`, or the rare fields of other records."""

    def __init__(self, *names: Any, rare: Mapping[str, Option], **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.rare = rare

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the lines that are settings; give the others to the command, as their options would."""
        rest = []
        for line in super().process_value(ctx, value):
            name, equals, text = line.partition("=")
            if name in self.rare and equals:
                kind = click.types.convert_type(_reading(self.rare[name]).get("type"))
                value_name = ("gate_" if name in options_of(Gate) else "") + name
                try:
                    ctx.params[value_name] = kind.convert(text, self, ctx)
                except click.BadParameter as error:
                    raise click.BadParameter(error.message, ctx, param_hint=f"'--set {name}'") from None
            else:
                rest.append(line)
        return tuple(rest)


def setting_options(*records: type) -> Callable[[F], F]:
    """Return the decorator that adds --as, --target, --config, --set and an option for each setting.

    --set also accepts the rare fields of `records`; `take_recipe` reads the given settings.
    """
    return option_list(
        option(
            "--as",
            "precision",
            group="Basic",
            type=Name(lambda: PRECISIONS),
            help="int8, float8, int8-dynamic, weight-only-8, weight-only-4, weight-only-2, or "
            "mixed (weights of 4 and 8 bits within --max-size); floating-point weights in blocks: "
            f"weight-only-float8, {', '.join(f'weight-only-{name}' for name in BLOCK_FORMATS)}."
            "  [default: int8]",
        ),
        option(
            "--config",
            group="Basic",
            type=EXISTING,
            metavar="FILE",
            help="YAML file of settings, or of your own target; options override it.",
        ),
        click.option(
            "--set",
            "lines",
            cls=SetOption,
            rare={name: each[name] for each in map(options_of, records) for name in each if name in RARE},
            group="Basic",
            multiple=True,
            metavar="KEY=VALUE",
            help="A line of that file: a setting, as in cost_model=off, or a fact about the runtime, as in "
            "runtime.operators.Conv=[float]; 'qprof schema config' lists all. Repeatable.",
        ),
        record_options(QuantConfig, shows_defaults=False),
    )


def take_recipe(options: dict[str, Any]) -> Recipe | None:
    """Remove the options of `setting_options` from `options`, and return their recipe; None for none."""
    names = ("precision", "config", "lines", *options_of(QuantConfig))
    words = given_options({name: options.pop(name) for name in names if name in options})
    if not words:
        return None
    from ..quantizer.targets.loading import load_recipe, parsed_lines

    config_file = words.pop("config", None)
    precision = words.pop("precision", None)
    settings, runtime = parsed_lines(words.pop("lines", ()), RARE)
    settings = {**settings, **words}
    if precision is not None:
        max_bytes = options.get("gate_max_size")
        size = settings.get("fit_size") if max_bytes is None else f"{max_bytes / 1000:.15g}kB"
        settings = settings_with(settings_of(precision, "--as", size), settings, f"--as {precision}")
    if config_file is not None and "target" in settings:
        raise ConfigError(
            "--target and --config: they exclude each other; a configuration file names its target"
        )
    return load_recipe(config_file or settings.pop("target", None), settings, runtime)

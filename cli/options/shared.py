"""Arguments and options that several commands share, and the options that fill a `QuantConfig`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from ...profiles.base.errors import ConfigError
from ...profiles.base.options import Option
from ...quantizer.evaluation.metrics.table import metric_names
from ...quantizer.targets.config import settings
from ..console import tell
from .files import DATA, EXISTING, MODEL, RECIPE
from .groups import F, option, option_list
from .numbers import FiniteNumber

if TYPE_CHECKING:
    from ...quantizer.targets.target import Recipe


class Name(StringParamType):
    """One of some names that the library knows, in help and completion.

    The library checks the value: one place, the same message from Python and from the command line.
    """

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the names as in "[minmax|percentile]"."""
        return f"[{'|'.join(self.names())}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with what was typed."""
        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


def _targets() -> Iterable[str]:
    from ...quantizer.targets.packaged import target_names

    return (*target_names(), "auto")


def _setting_option(setting: Option) -> Callable[[F], F]:
    """Return the option of a field of `QuantConfig`; the parameter's name is the field's."""
    kinds: dict[type, dict[str, Any]] = {
        str: {"type": Name(_targets if setting.name == "target" else lambda: setting.words)},
        int: {"type": click.IntRange(min=0)},
        float: {"type": FiniteNumber()},
        tuple: {"multiple": True},
    }
    repeatable = " Repeatable." if setting.kind is tuple else ""
    return option(
        setting.flag or f"--{setting.name.replace('_', '-')}",
        setting.name,
        group=setting.group,
        metavar=setting.metavar or None,
        help=setting.description + repeatable,
        **kinds[setting.kind],
    )


def _load_libraries(ctx: click.Context, parameter: click.Parameter, libraries: tuple[Path, ...]) -> None:
    if libraries:
        from ...profiles.runtime.providers import load_custom_operators

        load_custom_operators(*libraries)


custom_ops_option = option(
    "--custom-ops",
    group="Basic",
    type=EXISTING,
    multiple=True,
    metavar="LIB",
    expose_value=False,
    callback=_load_libraries,
    help="Library of custom operators to load; it is code and runs with your rights. Repeatable.",
)

model_argument = option_list(custom_ops_option, click.argument("model", type=MODEL, metavar="MODEL.onnx"))
"""Add MODEL.onnx, and --custom-ops, whose libraries are loaded before the command begins."""


_data = option(
    "--data",
    group="Basic",
    required=True,
    type=DATA,
    metavar="DATA",
    help="Samples: folder, file or URL (s3://...) of pictures, text, sound, rows or arrays; FILE.py:FUNCTION;"
    " or random:N.",
)
_preprocess = option(
    "--preprocess",
    group="Basic",
    type=RECIPE,
    metavar="RECIPE",
    help="How files become samples: imagenet, clip, yolo, raw, or FILE (recipe, preprocessor_config.json, "
    "tokenizer.json).",
)
_PREPARED = ("data", "holdout_data")
"""Parameters that name data."""


def preprocess_option(function: F) -> F:
    """Add --preprocess, and give it to the command with its data, as `PreprocessedData`."""

    @wraps(function)
    def prepared(*arguments: Any, preprocess: str | None, **options: Any) -> Any:
        if preprocess is not None:
            from ...profiles.samples.objects import PreprocessedData

            given = {name: options[name] for name in _PREPARED if options.get(name) is not None}
            options |= {name: PreprocessedData(source, preprocess) for name, source in given.items()}
        return function(*arguments, **options)

    return _preprocess(cast(F, prepared))


def data_option(function: F) -> F:
    """Add --data and --preprocess; the command takes both as `data`, a `DataLike`."""
    return _data(preprocess_option(function))


limit_option = option(
    "--limit", group="Basic", type=click.IntRange(min=1), metavar="N", help="Use the first N samples only."
)
threads_option = option(
    "--threads",
    group="Speed",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Threads of onnxruntime; 0 for all cores.",
)
provider_option = option(
    "--provider",
    group="Speed",
    default="cpu",
    show_default=True,
    metavar="NAME",
    help="Execution provider of onnxruntime, with its device: cpu, cuda, cuda:1, openvino, ...",
)
target_option = _setting_option(settings()["target"])
calibrator_option = _setting_option(settings()["calibrator"])
labelled_output_option = option(
    "--output",
    group="Quality",
    metavar="NAME",
    help="Output that labels and metric belong to.  [default: the first]",
)
metric_option = option(
    "--metric",
    group="Quality",
    type=DATA,
    metavar="NAME|FILE.py:FUNCTION",
    help=f"Score of both models: {', '.join(metric_names())}, with options as in map50:nms=0.6; or a "
    "function of your own.",
)
class_axis_option = option(
    "--class-axis",
    group="Quality",
    type=int,
    metavar="N",
    help="Axis of the classes of the output with labels, or of the first.  [default: its operator's]",
)
json_option = option("--json", "as_json", group="Files", is_flag=True, help="Print the result as JSON.")

_SETTINGS = (
    option(
        "--config",
        group="Basic",
        type=EXISTING,
        metavar="FILE",
        help="YAML file of settings, or of a target of your own; options overrule it.",
    ),
    *map(_setting_option, settings().values()),
    option(
        "--costs",
        group="Quality",
        type=EXISTING,
        metavar="COSTS.json",
        help="Times of the kernels on your machine (qprof measure-target), instead of the target's own.",
    ),
)

setting_options = option_list(*_SETTINGS)
"""Add --target, --config and an option for each setting; the command takes them as `**settings`."""


def recipe_of(options: dict[str, Any]) -> Recipe | None:
    """Return the recipe that the options of `setting_options` ask for; None when none was given.

    Settings that others decided are told as notes on stderr.

    Raises:
        ConfigError: a value that is not allowed, or both --target and --config.
    """
    given = {key: value for key, value in options.items() if value not in (None, ())}
    if not given:
        return None
    from ...quantizer.targets.loading import load_recipe

    source = given.pop("config", None)
    if source is not None and "target" in given:
        raise ConfigError(
            "--target and --config: they exclude each other; a configuration file names its target"
        )
    costs = given.pop("costs", None)
    recipe = load_recipe(source or given.pop("target", None), given)
    if costs is not None:
        from ...quantizer.targets.cost_table import read_table

        recipe = replace(recipe, measured=read_table(costs))
    for sentence in recipe.filled_in:
        tell(f"note: {sentence}")
    return recipe

"""Arguments and options that several commands share, and the options that fill a `QuantConfig`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from ...profiles.base.errors import ConfigError
from ...quantizer.targets.config import CHOICES

if TYPE_CHECKING:
    from ...quantizer.targets.target import Recipe


F = TypeVar("F", bound=Callable[..., Any])


class Name(StringParamType):
    """One of some names that the library knows.

    The names are asked for when help or a completion is written, so that parsing imports nothing heavy.
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


def _calibrators() -> Iterable[str]:
    from ...quantizer.ranges.calibrators import CALIBRATORS

    return CALIBRATORS


def _schemas() -> Iterable[str]:
    from ...quantizer.numerics.schemas import SCHEMAS

    return SCHEMAS


def _forms() -> Iterable[str]:
    from ...quantizer.targets.config import FORMS

    return FORMS


def _targets() -> Iterable[str]:
    from ...quantizer.targets.loading import target_names

    return target_names()


EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW = click.Path(dir_okay=False, path_type=Path)

model_argument = click.argument("model", type=EXISTING, metavar="MODEL.onnx")
data_option = click.option(
    "--data", required=True, metavar="DIR", help="Folder of samples (.npz, .npy, .pb), or module:function."
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Use the first N samples only."
)
threads_option = click.option(
    "--threads", type=click.IntRange(min=0), default=0, metavar="N", help="Of onnxruntime; 0 for all cores."
)
target_option = click.option("--target", type=Name(_targets), help="Runtime that the result is for.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")

# An option for each field of QuantConfig that a user often sets; the parameter's name is the field's.
_SETTINGS = (
    target_option,
    click.option("--config", type=EXISTING, metavar="FILE", help="YAML settings; options overrule them."),
    click.option(
        "--mode", type=Name(lambda: CHOICES["mode"]), help="Which nodes: integer, dynamic, weight-only."
    ),
    click.option("--schema", type=Name(_schemas), help="How a range becomes scale and zero point."),
    click.option("--calibrator", type=Name(_calibrators), help="How a histogram becomes a range."),
    click.option("--form", type=Name(_forms), help="How the plan is written in ONNX."),
    click.option(
        "--activation-type", metavar="[int8|uint8|int16|uint16]", help="Integer type of activations."
    ),
    click.option(
        "--keep-16bit",
        multiple=True,
        metavar="NAME|TYPE|GLOB",
        help="Tensors or nodes in 16 bits; repeatable.",
    ),
    click.option(
        "--inter-layer",
        type=Name(lambda: CHOICES["inter_layer"]),
        help="Whether outputs stay in codes, or return.",
    ),
    click.option("--weight-type", metavar="[int8|uint8|int7|int4|uint4]", help="Integer type of weights."),
    click.option(
        "--block-size", type=click.IntRange(min=0), metavar="N", help="Elements of a weight's block."
    ),
    click.option(
        "--granularity", type=Name(lambda: CHOICES["granularity"]), help="Weight scales: one, or per channel."
    ),
    click.option(
        "--scale-sharing",
        type=Name(lambda: CHOICES["scale_sharing"]),
        help="Whether inputs of Concat, ... share scales.",
    ),
    click.option(
        "--lookup-tables",
        type=Name(lambda: CHOICES["lookup_tables"]),
        help="Spelling of Sigmoid, Tanh, ... as a table.",
    ),
    click.option(
        "--equalization",
        type=Name(lambda: CHOICES["equalization"]),
        help="Even out the channels of activations: by a Mul where need be, only for free, or not.",
    ),
    click.option(
        "--bias-correction",
        type=Name(lambda: CHOICES["bias_correction"]),
        help="Let biases make up for rounded weights.",
    ),
    click.option(
        "--rounding",
        type=Name(lambda: CHOICES["rounding"]),
        help="Of weights: to the nearest code, keeping sums, or with samples (quantize --data) by GPTQ.",
    ),
    click.option(
        "--min-sqnr", type=float, metavar="DB", help="Activations that would fall below stay float."
    ),
    click.option(
        "--min-output-sqnr",
        type=float,
        metavar="DB",
        help="Signal over noise that outputs keep, as reckoned: the nodes that take most stay float.",
    ),
    click.option(
        "--keep-float", multiple=True, metavar="NAME|TYPE|GLOB", help="Stay float; may be repeated."
    ),
)


def setting_options(function: F) -> F:
    """Add --target, --config and an option for each setting; the command takes them as `**settings`."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


def recipe_of(settings: dict[str, Any]) -> Recipe | None:
    """Return the recipe that the options of `setting_options` ask for; None when none was given.

    Raises:
        ConfigError: a value that is not allowed, or both --target and --config.
    """
    given = {key: value for key, value in settings.items() if value not in (None, ())}
    if not given:
        return None
    from ...quantizer.targets.loading import load_recipe

    source = given.pop("config", None)
    if source is not None and "target" in given:
        raise ConfigError("--target and --config exclude each other; a configuration file names its target")
    return load_recipe(source or given.pop("target", None), given)


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | None]) -> None:
    """Refuse, before any work: a file that is read, two results in one file, a folder that is not there.

    Raises:
        ConfigError: naming the output.
    """
    taken = [path.resolve() for path in inputs if path is not None]
    for output in outputs:
        if output is None:
            continue
        if output.resolve() in taken:
            raise ConfigError(f"{output}: is another file of this command already; choose another name")
        if not output.resolve().parent.is_dir():
            raise ConfigError(f"{output}: there is no folder '{output.parent}'; make it, or choose another")
        taken.append(output.resolve())

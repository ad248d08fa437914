"""Parameters that name files: each says whether its file is read or written, and a command compares them.

So a command cannot write over what it reads: `FileCommand` looks at the types of its own parameters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ...profiles.base.errors import ConfigError
from ..console import keep_stdout_free


class FileRead(click.Path):
    """A file that is read; `is_model` for an ONNX file, which may have weights in other files."""

    def __init__(self, *, is_model: bool = False) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)
        self.is_model = is_model

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.

        Raises:
            ConfigError: onnx and onnxruntime cannot open a model of this name.
        """
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        if self.is_model and any("\ud800" <= character <= "\udfff" for character in os.fspath(path)):
            raise ConfigError(f"{path}: its name is not UTF-8, and onnx cannot open it; rename it")
        return path


class FileWritten(click.Path):
    """A file that is written, or kept up to date: it must be none that the command reads."""

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.

        Raises:
            ConfigError: no file can have this name; see `destination`.
        """
        from ...profiles.base.destinations import destination

        destination(value)  # while a slash at the end is still there
        return super().convert(value, param, ctx)


class DataRead(click.types.StringParamType):
    """A folder of samples, or "module:function" of samples or of a metric."""

    name = "data"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Return the request to complete names of folders."""
        return [click.shell_completion.CompletionItem(incomplete, type="dir")]


EXISTING = FileRead()
MODEL = FileRead(is_model=True)
NEW = FileWritten()
DATA = DataRead()


class FileCommand(click.Command):
    """A command that refuses, before any work, to write over what it reads."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, if its outputs can be written."""
        outputs = list(_given(ctx, FileWritten))
        if outputs:
            from ...profiles.base.destinations import leads_to_stdout
            from ...quantizer.model.outputs import FilesRead, check_outputs

            reads = list(_given(ctx, FileRead))
            models = tuple(path for kind, path in reads if kind.is_model)
            files = tuple(path for kind, path in reads if not kind.is_model)
            data = tuple(source for _, source in _given(ctx, DataRead))
            if any(leads_to_stdout(path) for _, path in outputs):
                keep_stdout_free(ctx)
            check_outputs([path for _, path in outputs], FilesRead(models, files, data))
        return super().invoke(ctx)


def _given(ctx: click.Context, kind: type) -> Iterator[tuple[Any, Any]]:
    """Yield the type and each value of the parameters whose type is of a kind."""
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if isinstance(parameter.type, kind) and value is not None:
            values: Iterable[Any] = value if isinstance(value, tuple) else (value,)
            yield from ((parameter.type, item) for item in values)


def default_profile(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    """Return where `qprof dump-profile` writes when nobody says: into the current folder.

    Raises:
        ConfigError: see `destination`.
    """
    if value is not None:
        return value
    model = ctx.params.get("model")
    if not isinstance(model, Path):
        raise ConfigError("the profile has no name; give one with -o")
    return Path(f"{model.stem}.profile.yaml")

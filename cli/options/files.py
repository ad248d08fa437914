"""Parameters that name files: each says whether its file is read or written, and a command compares them.

So a command cannot write over what it reads: `FileCommand` looks at the types of its own parameters.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ...profiles.base.errors import ConfigError
from ..console import keep_stdout_free, note_arguments, note_values


class FileRead(click.Path):
    """A file that is read; `is_model` for an ONNX file, which may have weights in other files.

    `or_folder`: it may be a folder of files.
    """

    def __init__(self, *, is_model: bool = False, or_folder: bool = False) -> None:
        super().__init__(exists=True, dir_okay=or_folder, path_type=Path)
        self.is_model = is_model

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.

        Raises:
            ConfigError: onnx and onnxruntime cannot open a model of this name.
        """
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        if self.is_model and any("\ud800" <= character <= "\udfff" for character in os.fspath(path)):
            raise ConfigError(f"{path}: its name is not UTF-8, and onnx cannot open it; rename it")
        _noted(ctx, "model" if self.is_model else "data" if path.is_dir() else "file", path)
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
        from ...profiles.base.output_files import destination

        destination(value)  # while a slash at the end is still there
        return super().convert(value, param, ctx)


class FolderWritten(click.Path):
    """A folder that files are written into; it is made if it is not there."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Take the names of the files; none of them may be one that the command reads."""
        super().__init__(file_okay=False, readable=False, path_type=Path)
        self.names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        if ctx is not None:
            files = (path / name for name in self.names)
            ctx.meta.setdefault(_WRITTEN, []).extend(file for file in files if file.exists())
        return path


class DataRead(click.types.StringParamType):
    """A folder of samples, or "module:function" of samples or of a metric."""

    name = "data"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name of the folder or function."""
        _noted(ctx, "data", value)
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Return the request to complete names of folders."""
        return [click.shell_completion.CompletionItem(incomplete, type="dir")]


class RecipeRead(click.types.StringParamType):
    """A built-in recipe of preprocessing, or the file of one, which is read."""

    name = "recipe"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name of the recipe or of its file."""
        if os.path.isfile(value):
            _noted(ctx, "file", value)
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Return the built-in recipes that begin with what was typed, or the request to complete files."""
        from ...profiles.samples.preprocessing import BUILT_IN

        fitting = [name for name in BUILT_IN if name.startswith(incomplete)]
        items = [click.shell_completion.CompletionItem(name) for name in fitting]
        return items or [click.shell_completion.CompletionItem(incomplete, type="file")]


EXISTING = FileRead()
TRUTH = FileRead(or_folder=True)
MODEL = FileRead(is_model=True)
NEW = FileWritten()
REPORT = FolderWritten(("report.html", "report.md", "junit.xml", "report.json"))
DATA = DataRead()
RECIPE = RecipeRead()


class FileCommand(click.Command):
    """A command that refuses, before any work, to write over what it reads."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line, and keep them."""
        note_arguments(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, if its outputs can be written."""
        note_values(ctx)
        outputs = [p for p in self.params if isinstance(p.type, FileWritten)]
        paths = [path for p in outputs if (path := ctx.params.get(p.name or "")) is not None]
        paths += ctx.meta.get(_WRITTEN, ())
        if paths:
            from ...profiles.base.output_files import leads_to_stdout
            from ...quantizer.model.output_paths import FilesRead, check_outputs

            if any(leads_to_stdout(path) for path in paths):
                keep_stdout_free(ctx)
            read = ctx.meta.get(_READ, ())
            check_outputs(paths, FilesRead(*(tuple(v for kind, v in read if kind == k) for k in KINDS)))
        return super().invoke(ctx)


KINDS = ("model", "file", "data")
"""Of what is read, in the order of the fields of `FilesRead`."""
_READ, _WRITTEN = "qprof.read", "qprof.written"


def _noted(ctx: click.Context | None, kind: str, value: object) -> None:
    """Keep a value that names what is read: as it is parsed, as not every option is a parameter."""
    if ctx is not None:
        ctx.meta.setdefault(_READ, []).append((kind, value))


def default_profile(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    """Return where `qprof dump-profile` writes when nobody says: into the current folder.

    Raises:
        ConfigError: see `destination`.
    """
    if value is not None:
        return value
    model = ctx.params.get("model")
    if not isinstance(model, Path):
        raise ConfigError("-o: the profile has no name; give one")
    return Path(f"{model.stem}.profile.yaml")

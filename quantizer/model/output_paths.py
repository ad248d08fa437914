"""Where a command may write: never over a file that it reads, nor two results into one file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError
from ...profiles.base.output_files import destination
from ...profiles.samples.functions import is_function, module_file
from ...profiles.samples.objects import PreprocessedData, Transformed
from ...profiles.samples.preprocessing import recipe_file
from ...profiles.samples.registry import is_sample_name
from .external_data import external_files
from .folders import model_in
from .protobuf import read_proto
from .saving import weight_files

Output: TypeAlias = str | os.PathLike[str] | None


@dataclass(frozen=True)
class FilesRead:
    """The files that a command reads: they may not be written over."""

    models: tuple[object, ...] = ()  # ONNX files, or models in memory; files of external data belong to them
    files: tuple[object, ...] = ()  # profiles, plans, configurations, labels
    data: tuple[object, ...] = ()  # folders of samples, and "module:function", of samples or of a metric

    def weights(self) -> set[Path]:
        """Return the files of external data of the models; none of a model that cannot be read."""
        files: set[Path] = set()
        for model in self.models:
            if isinstance(model, ir.Model):
                files |= weight_files(model)
            elif isinstance(model, str | os.PathLike):
                with suppress(OSError, ModelError):
                    files |= external_files(model_in(model))
        return files


OTHER_SUFFIXES = (".yaml", ".yml", ".json", ".html", ".md", ".txt", ".py", ".ort", ".gz", ".xz", ".zip")


def check_outputs(outputs: Iterable[Output], read: FilesRead, *, model: Output = None) -> None:
    """Refuse, before any work, outputs that cannot be written, or that would replace inputs.

    The output that is the `model` has no name of another kind of file, and replaces no file but a model.
    """
    taken: list[Path] = []
    for output in outputs:
        if output is None:
            continue
        target = destination(output)
        folder = next(one for one in target.parents if one.exists())  # the others are made
        if not folder.is_dir():
            raise ConfigError(f"{output}: '{folder}' is a file, and no folder; choose another name")
        if reason := _refusal_to_write(folder):
            raise ConfigError(f"{output}: '{folder}' cannot be written to ({reason}); choose another folder")
        if any(_is_same(target, other) for other in taken):
            raise ConfigError(f"{output}: is another output of this command already; choose another name")
        taken.append(target)
        if what := _overwritten(target, read):
            raise ConfigError(f"{output}: is {what}, which this command reads; choose another name")
        if output is model and (is_sample_name(target.name) or target.suffix.lower() in OTHER_SUFFIXES):
            raise ConfigError(f"{output}: is the name of another kind of file; name the model OUT.onnx")
        if output is model and target.exists() and not _may_be_model(target):
            raise ConfigError(f"{output}: exists, and is no ONNX model; choose another name, or remove it")


def _may_be_model(file: Path) -> bool:
    """Whether a file is empty, begins with the number of the IR version, or is read as a model."""
    with suppress(OSError), file.open("rb") as stream:
        if stream.read(1) in (b"", b"\x08"):
            return True
    with suppress(ModelError):
        return bool(read_proto(file).HasField("graph"))
    return False


def _refusal_to_write(folder: Path) -> str:
    """Return why a trial shows that no file can be written, or "": permission bits do not show /proc."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


def _overwritten(file: Path, read: FilesRead) -> str:
    """Return the input that an output would be written over, in words; "" for none."""
    for model in _paths(read.models):
        with suppress(ModelError):
            if _is_same(file, model_in(model)):
                return "the model"
    if file.exists() and any(_is_same(file, data) for data in read.weights()):
        return "a file of the model's weights"
    files, samples = list(read.files), list[object]()
    for data in read.data:
        if isinstance(data, PreprocessedData):
            files.append(recipe_file(data.preprocess))
            samples.append(data.source)
        else:
            samples.append(data.data if isinstance(data, Transformed) else data)
    for path in _paths(files):
        if _is_same(file, path):
            return f"'{path}'"
    for data in _paths(samples):
        if not is_function(os.fspath(data)):
            if _is_sample(file, data):
                return f"a sample of '{data}'"
            continue
        with suppress(OSError):
            module = module_file(os.fspath(data))
            if module is not None and _is_same(file, module):
                return f"the module of {data}"
    return ""


def _paths(objects: Iterable[object]) -> list[Path]:
    return [Path(item) for item in objects if isinstance(item, str | os.PathLike)]


def _is_same(file: Path, other: Path) -> bool:
    """Return whether two names are of one entry of one folder: case, mounts and links may differ."""
    if os.path.realpath(other) == os.fspath(file):
        return True
    with suppress(OSError):
        status = os.stat(file)
        if os.path.samestat(status, os.stat(other)):
            # Two hard links are two entries; two ways to write one name are one.
            real = Path(os.path.realpath(other))
            has_name = file.name.casefold() == real.name.casefold()
            return status.st_nlink == 1 or (has_name and os.path.samefile(file.parent, real.parent))
    return False


def _is_sample(file: Path, folder: Path) -> bool:
    """Return whether a file is a sample of a folder, or would be one; only links in it are followed."""
    real = Path(os.path.realpath(folder))
    has_name = is_sample_name(file.name)
    if has_name and real in (file, file.parent, file.parent.parent):
        return True
    if not file.exists():
        return False
    targets = [os.fspath(file), *([os.fspath(file.parent)] if has_name else [])]
    with suppress(OSError), os.scandir(real) as entries:
        return any(entry.is_symlink() and os.path.realpath(entry.path) in targets for entry in entries)
    return False

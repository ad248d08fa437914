"""Names of a model's classes: of its metadata, of files beside the model or the data, and of folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from ....profiles.base.errors import QprofError
from ....profiles.base.json_values import settings_beside
from ....profiles.samples.objects import DataLike, place_of_data
from ....profiles.samples.picture_files import (
    CLASS_NAMES,
    data_yaml_names,
    folder_classes,
    is_data_yaml,
)
from ....profiles.samples.samples import folder_of
from ...evaluation.metrics.metric import names_by_number, names_in_metadata

METADATA = ("names", "id2label", "class_names", "classes", "labels", "character")
"""Keys of a model's metadata that exporters write names under: ultralytics, Hugging Face's optimum, PaddleOCR
(one a line) and others."""

NAME_FILES = (CLASS_NAMES, "labels.txt")
"""Files of names, one a line, beside a model; beside data the second is the truth."""

MAX_BYTES = 1 << 20
"""Of a file of names: a larger one is something else."""


@dataclass(frozen=True, eq=False)
class ClassNames:
    """The names that a model's classes may have."""

    model: ir.Model  # float; files beside it may have the names
    data: DataLike | None = None  # whose folder may have them
    in_truth: tuple[str, ...] = ()  # in the order of the classes

    def of(self, count: int) -> Mapping[int, str]:
        """Return the names of n classes by number, from the first source that has as many."""
        return self.stated(count) or (self._of_folders if len(self._of_folders) == count else {})

    def stated(self, count: int) -> Mapping[int, str]:
        """Return the names like `of`, except those of folders, whose number proves little about an output."""
        return next((names for names in self._known if len(names) == count == max(names) + 1), {})

    @cached_property
    def of_any(self) -> Mapping[int, str]:
        """The names in the model's metadata, else those of the first source, for any number of classes."""
        own = (names_in_metadata(self.model, key) for key in METADATA)
        return next((names for names in own if names), next(iter(self._known), {}))

    @cached_property
    def _known(self) -> list[Mapping[int, str]]:
        return [names for names in self._sources() if names]

    @cached_property
    def _of_folders(self) -> Mapping[int, str]:
        place = place_of_data(self.data)
        with suppress(QprofError):  # pictures that lie in no folder of a class, or none
            return dict(enumerate(folder_classes(place).names)) if os.path.isdir(place) else {}
        return {}

    def _sources(self) -> Iterator[Mapping[int, str]]:
        """Yield the names of each source: a file beside the data, the model, files beside it, the truth."""
        place = place_of_data(self.data)
        folder = Path(place) if place and os.path.isdir(place) else None
        if folder is not None:
            yield from _listed(folder, NAME_FILES[:1])
        elif place:
            yield _data_yaml_names(place)
        yield from (names_in_metadata(self.model, key) for key in METADATA)
        beside = folder_of(self.model)
        if beside is not None:
            id2label = settings_beside(beside / "config.json").get("id2label")
            names = names_by_number(id2label) if isinstance(id2label, dict) else {}
            yield {} if any(name.startswith("LABEL_") for name in names.values()) else names
            yield from _listed(beside, NAME_FILES)
        yield dict(enumerate(self.in_truth))


def _data_yaml_names(place: str) -> Mapping[int, str]:
    try:
        return data_yaml_names(place) if is_data_yaml(place) else {}
    except QprofError:
        return {}


def _listed(folder: Path, files: Sequence[str]) -> Iterator[Mapping[int, str]]:
    """Yield the names in each file of names in a folder; numbers are no names but in `classes.txt`."""
    for name in files:
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= MAX_BYTES:
                lines = path.read_text(encoding="utf-8-sig").splitlines()
                names = [line.strip() for line in lines if line.strip()]
                yield {} if name != CLASS_NAMES and "".join(names).isdigit() else dict(enumerate(names))
        except (OSError, UnicodeDecodeError):
            continue

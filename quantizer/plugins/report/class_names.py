"""Names of a model's classes: of its metadata, of its configuration, and of the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from ....profiles.base.json_values import settings_beside
from ....profiles.samples.samples import folder_of
from ...evaluation.metrics.metric import names_by_number, names_in_metadata

METADATA = ("names", "id2label", "class_names", "classes", "labels", "character")
"""Keys of a model's metadata that exporters write names under: ultralytics, Hugging Face's optimum, PaddleOCR
(one a line) and others."""


@dataclass(frozen=True, eq=False)
class ClassNames:
    """The names that a model's classes may have."""

    model: ir.Model  # float; config.json beside it may have the names
    in_truth: tuple[str, ...] = ()  # in the order of the classes

    def of(self, count: int) -> Mapping[int, str]:
        """Return the names of n classes by number, from the first source that has as many."""
        return next((names for names in self._known if len(names) == count == max(names) + 1), {})

    @property
    def of_any(self) -> Mapping[int, str]:
        """The names of the first source, for any number of classes."""
        return next(iter(self._known), {})

    @cached_property
    def _known(self) -> list[Mapping[int, str]]:
        return [names for names in self._sources() if names]

    def _sources(self) -> Iterator[Mapping[int, str]]:
        """Yield the names of each source: the metadata, the configuration beside the model, the truth."""
        yield from (names_in_metadata(self.model, key) for key in METADATA)
        beside = folder_of(self.model)
        if beside is not None:
            id2label = settings_beside(beside / "config.json").get("id2label")
            names = names_by_number(id2label) if isinstance(id2label, dict) else {}
            yield {} if any(name.startswith("LABEL_") for name in names.values()) else names
        yield dict(enumerate(self.in_truth))

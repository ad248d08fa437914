"""What the public functions take: labels and data, each a path or an object."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ...profiles.base.errors import ConfigError, DataError, QprofError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.output_files import temporary_folder
from ...profiles.base.tool import note
from ...profiles.records.profile import Profile
from ...profiles.samples.functions import is_function
from ...profiles.samples.objects import (
    DataLike,
    DataSource,
    PreprocessedData,
    Transformed,
    is_array,
    items_of_object,
)
from ...profiles.samples.random_samples import is_random
from ...profiles.samples.registry import column_of
from ...profiles.samples.storage import is_url
from ..evaluation.metrics.table import metric_of_truth
from ..evaluation.metrics.truth import LabelsLike, table_and_column

if TYPE_CHECKING:
    from ..evaluation.options import Judge

Transform: TypeAlias = Callable[[Any], object]
"""Makes a sample of an item of the data."""


def samples_of(
    data: DataSource,
    transform: Transform | None,
    preprocess: str | os.PathLike[str] | None = None,
    labels: object = None,
    *others: object,
    keep: bool = True,
) -> DataLike:
    """Return data with functions that make samples; its column of labels, or that of others, is no input."""
    label = _label_column(labels, data, *others)
    if preprocess is not None:
        if transform is not None or not isinstance(data, str | os.PathLike):
            raise ConfigError(
                "preprocess: is for folders and files; for objects of Python give transform, a function"
            )
        return PreprocessedData(os.fspath(data), os.fspath(preprocess), label)
    if label and transform is None and isinstance(data, str | os.PathLike):
        return PreprocessedData(str(data), label=label)
    source = items_of_object(data, keep=keep)
    return source if transform is None else Transformed(source, transform)


def _label_column(labels: object, *tables: object) -> str:
    """Return the column of labels that are in one of the tables, else ""; DataError without it."""
    table, column = table_and_column(labels) if isinstance(labels, str | os.PathLike) else ("", "")
    paths = [os.path.realpath(one) for one in tables if isinstance(one, str | os.PathLike)]
    if not (column or table.endswith((".csv", ".tsv"))) or os.path.realpath(table) not in paths:
        return ""
    next(column_of(table, column), None)
    return column


def are_samples(source: object) -> bool:
    """Whether the argument for a profile is samples: objects, a folder, a function, a URL, random values."""
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        return os.path.isdir(text) or is_url(text) or is_random(text) or is_function(text)
    return source is not None and not isinstance(source, Profile)


J = TypeVar("J", bound="Judge")


def with_metric_of_labels(judge: J) -> J:
    """Return the judge; without a metric, with the metric of its labels, and a note on the choice."""
    truth = judge.labels
    is_file = judge.metric is None and isinstance(truth, str | os.PathLike)
    name = metric_of_truth(str(truth)) if is_file else None
    if name is None:
        return judge
    sentence = f"{truth}: contains boxes, which metric {name} scores"
    note(Finding(Code.METRIC_ASSUMED, sentence, str(truth), remedy="override with --metric map50 or f1"))
    return replace(judge, metric=name)


@contextmanager
def labels_file(labels: LabelsLike | None, *, classes: bool) -> Iterator[Path | None]:
    """Yield the file of labels, which may be temporary, or None without labels."""
    if labels is None or isinstance(labels, str | os.PathLike):
        yield None if labels is None else Path(labels)
        return
    if not is_array(labels) and (isinstance(labels, Mapping) or not isinstance(labels, Iterable)):
        is_function = "a function" if callable(labels) else f"of type {type(labels).__name__}"
        raise DataError(
            f"labels: is {is_function}; give the labels themselves, one for each row, such as "
            "[y for x, y in data]"
        )
    given = labels if is_array(labels) else list(labels)
    try:
        of_batches = isinstance(given, list) and all(np.ndim(one) == 1 for one in given) and given
        values = np.concatenate(given) if of_batches else np.asarray(given)
    except ValueError:
        raise DataError("labels: are lists of different lengths; give one label for each row") from None
    if values.dtype.kind not in ("iu" if classes else "iufbU"):
        what = "integer" if classes else "number or text"
        raise DataError(f"labels: are of type {values.dtype}; give one {what} for each row")
    with temporary_folder() as folder:
        file = folder / ("labels.txt" if values.dtype.kind == "U" else "labels.npy")
        if values.dtype.kind == "U":
            texts = "\n".join(str(text).replace("\n", " ") for text in values.reshape(-1))
            file.write_text(f"{texts}\n", encoding="utf-8")
        else:
            np.save(file, values)
        try:
            yield file
        except QprofError as error:
            error.args = tuple(str(part).replace(str(file), "labels") for part in error.args)
            raise

"""What exporters of detectors write into a model: how its pictures were prepared, and their size."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .preprocessing import RECIPE, Preprocessing, load_preprocessing
from .values import InputSpec

LETTERBOX_TASKS = ("detect", "segment", "pose", "obb")
"""Tasks, as ultralytics calls them, whose pictures come in a letterbox."""


def with_export(
    preprocessing: Preprocessing, inputs: Sequence[InputSpec], metadata: Mapping[str, str]
) -> tuple[Preprocessing, str]:
    """Return the preparation of pictures, completed from a model's metadata, and a sentence about it."""
    task, sentence = metadata.get("task"), ""
    if not preprocessing.name and task in LETTERBOX_TASKS and "DETR" not in metadata.get("description", ""):
        preprocessing = load_preprocessing("yolo")
        sentence = f"yolo: the model's metadata say task {task}, whose pictures come in a letterbox"
    size = _size(metadata, inputs)
    if preprocessing.reader != "image" or preprocessing.kind != RECIPE or size is None:
        return preprocessing, sentence
    if preprocessing.settings.get("size") is not None:
        return preprocessing, sentence
    word = f"{size[0]}x{size[1]}" if size[0] != size[1] else f"{size[0]}"
    name = f"{preprocessing.name}:{word}" if preprocessing.path is None else preprocessing.name
    settings = {**preprocessing.settings, "size": list(size)}
    reason = "and imgsz" if sentence else f"{name}: the model's metadata say imgsz"
    sentence = f"{sentence or ''} {reason} {size[0]} x {size[1]}".strip()
    return replace(preprocessing, name=name, settings=settings), sentence


def _size(metadata: Mapping[str, str], inputs: Sequence[InputSpec]) -> tuple[int, int] | None:
    """Return the height and width in the exporter's metadata if the input leaves them free, else None."""
    pictures = [spec.shape for spec in inputs if spec.shape is not None and len(spec.shape) == 4]
    if len(pictures) != 1 or sum(not isinstance(side, int) for side in pictures[0][1:]) < 2:
        return None
    try:
        size = ast.literal_eval(metadata.get("imgsz", ""))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    sides = size if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        return None
    return sides[0], sides[1]

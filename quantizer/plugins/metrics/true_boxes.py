"""True boxes: COCO JSON and folders of YOLO text files, moved to the coordinates of the model's input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ConfigError, DataError
from ....profiles.base.extras import library
from ....profiles.samples.objects import DataLike, PreprocessedData, place_of_data
from ....profiles.samples.picture_files import box_files, data_yaml_names, image_files, is_data_yaml
from ....profiles.samples.preprocessing import load_preprocessing
from ...evaluation.metrics.metric import MetricSource, names_in_metadata
from ...evaluation.metrics.truth import Place
from .boxes import Boxes, boxes_of
from .detector_outputs import input_size
from .truth_files import files_by_stem, read_text, stem_of, unique_stems


@dataclass(frozen=True, eq=False)
class TrueBoxes:
    """The true boxes of all pictures."""

    of_sample: Callable[[Place, int], list[Boxes]]  # place, pictures -> boxes of each
    check_rows: Callable[[int, bool], None]  # as `Metric.finish`
    assumed: str
    names: Mapping[int, str] = field(default_factory=dict)


def true_boxes(source: MetricSource) -> TrueBoxes:
    """Return the boxes of a COCO JSON file, or of YOLO text files: a folder of them, or a `data.yaml`."""
    assert source.truth is not None
    path = Path(source.truth)
    placement = source.metric.options["placement"]
    placement = _placement_of_recipe(source.data) if placement is None else str(placement)
    if path.is_dir() or is_data_yaml(str(path)):
        return _yolo(source, path, placement)
    if path.suffix.lower() == ".json":
        return _coco(source, path, placement)
    raise DataError(
        f"{path}: true boxes are a COCO .json file, a folder of YOLO .txt files or a data.yaml; give "
        "one of them"
    )


def holds_true_boxes(path: str) -> bool:
    """Return whether a file or folder has true boxes in it; a COCO file without boxes is a ConfigError."""
    place = Path(path)
    if is_data_yaml(path):
        return True
    if place.is_dir():
        first = next((f for f in sorted(place.iterdir()) if f.suffix.lower() == ".txt"), None)
        with suppress(DataError):
            return first is not None and len(_read_yolo(first).corners) > 0
        return False
    if place.suffix.lower() != ".json":
        return False
    with suppress(msgspec.MsgspecError, RecursionError, DataError):
        parts = msgspec.json.decode(read_text(path), type=dict[str, Any])
        if not (isinstance(parts.get("images"), list) and isinstance(parts.get("annotations"), list)):
            return False
        if any("bbox" in entry for entry in parts["annotations"] if isinstance(entry, dict)):
            return True
        raise ConfigError(
            f"{path}: is a COCO file without boxes (bbox); name the metric, and give the truth that it "
            "reads: masks with --metric miou"
        )
    return False


def _placement_of_recipe(data: DataLike | None) -> str | None:
    """Return the placement that a recipe for pictures makes; None without one, or if it crops them."""
    if not isinstance(data, PreprocessedData) or data.preprocess is None:
        return None
    settings = load_preprocessing(data.preprocess).settings
    if settings.get("crop", "none") != "none":
        return None
    if settings.get("resize") == "letterbox":
        return "top-left" if settings.get("place") == "top-left" else "letterbox"
    return "stretch" if settings.get("resize") == "exact" else None


def boxes_in_input(
    corners: npt.NDArray[np.float64], size: tuple[float, float], target: tuple[int, int], how: str
) -> npt.NDArray[np.float64]:
    """Return boxes [boxes, 4] of a picture in pixels of the model's input; sizes are (width, height)."""
    if how == "input":
        return corners
    scale = np.array(target, np.float64) / size
    if how != "stretch":
        scale = np.full(2, scale.min())
    border = (np.array(target) - np.array(size) * scale) / 2.0
    border = np.zeros(2) if how == "top-left" else border
    return np.asarray(corners * np.tile(scale, 2) + np.tile(border, 2), np.float64)


@dataclass(frozen=True)
class _Image:
    id: int | str
    width: float
    height: float
    file_name: str = ""


@dataclass(frozen=True)
class _Annotation:
    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int | bool = 0


@dataclass(frozen=True)
class _Category:
    id: int
    name: str = ""
    supercategory: str | None = None


@dataclass(frozen=True)
class _Coco:
    """The parts of a COCO file that are read."""

    images: tuple[_Image, ...]
    annotations: tuple[_Annotation, ...]
    categories: tuple[_Category, ...] = ()


def _coco(source: MetricSource, path: Path, placement: str | None) -> TrueBoxes:
    try:
        record = msgspec.json.decode(read_text(str(path)), type=_Coco)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DataError(
            f"{path}: is not a COCO file of boxes ({error}); it needs images with id, width and height, and "
            "annotations with image_id, category_id and bbox"
        ) from error
    annotations: dict[int | str, list[_Annotation]] = {image.id: [] for image in record.images}
    for entry in record.annotations:
        if entry.image_id not in annotations:
            raise DataError(f"{path}: a box is of image {entry.image_id}, which is not listed; list it")
        annotations[entry.image_id].append(entry)
    if len(annotations) < len(record.images):
        raise DataError(f"{path}: two images have one id; give each its own")
    classes, numbered = _classes_of_categories(source, path, record)
    sizes = [(image.width, image.height) for image in record.images]
    target = input_size(source)
    if placement is None:
        placement = "input" if all(size == target for size in sizes) else "letterbox"
    boxes = []
    for entries, size in zip(annotations.values(), sizes, strict=True):
        corners = np.array([entry.bbox for entry in entries], np.float64).reshape(-1, 4)
        corners[:, 2:] += corners[:, :2]
        numbers = np.array([classes.get(entry.category_id, -1) for entry in entries], np.int64)
        crowd = np.array([bool(entry.iscrowd) for entry in entries], np.bool_)
        corners = boxes_in_input(corners, size, target, placement)
        of_picture = replace(boxes_of(corners, numbers), crowd=crowd)
        boxes.append(of_picture.subset(numbers >= 0))
    pictures, unique_stem = dict[str, list[Boxes]](), unique_stems(str(path))
    for image, of_image in zip(record.images, boxes, strict=True):
        pictures.setdefault(stem_of(image.file_name or str(image.id)), []).append(of_image)

    def of_sample(place: Place, rows: int) -> list[Boxes]:
        stem = unique_stem(place.name)
        found = pictures.get(stem, [])
        if rows != 1 or len(found) != 1:
            first = next(iter(pictures), "")
            raise DataError(
                f"{path}: lists {len(found)} pictures '{stem}' for sample {place.name} of {rows}; name each "
                f"sample as the file names its picture, such as '{first}', one picture a sample, and list "
                "pictures without boxes too"
            )
        return found

    named = {category.id: category.name for category in record.categories}
    return TrueBoxes(
        of_sample,
        check_rows=lambda rows, cut: None,
        assumed=f"true boxes of pictures in placement {placement}; {numbered}",
        names={at: named[id_] for id_, at in classes.items() if named.get(id_)},
    )


def _classes_of_categories(source: MetricSource, path: Path, record: _Coco) -> tuple[dict[int, int], str]:
    """Return the class of the model for the id of each category, and a sentence on the numbering.

    Names decide if the model has some, else the order of ids, without one that only stands above the others.
    """
    named = {category.id: category.name for category in record.categories}
    with_boxes = {entry.category_id for entry in record.annotations}
    if source.metric.options["ids"]:
        return {id_: id_ for id_ in with_boxes | set(named)}, "the ids of categories are the classes"
    if by_name := _classes_by_name(source, path, named, with_boxes):
        return by_name
    above = {
        category.id
        for category in record.categories
        if category.id not in with_boxes
        and category.name
        and len(record.categories) > 1
        and all(one.supercategory == category.name for one in record.categories if one is not category)
    }
    ids = sorted((with_boxes | set(named)) - above)
    shown = [f"{named.get(id_) or id_} is {at}" for at, id_ in enumerate(ids)]
    numbered = f"categories are classes in the order of ids, {_some(shown)}"
    return {id_: at for at, id_ in enumerate(ids)}, numbered


def _classes_by_name(
    source: MetricSource, path: Path, named: Mapping[int, str], with_boxes: Collection[int]
) -> tuple[dict[int, int], str] | None:
    """Return the model's class for each number of a file by its name, and a sentence, if there are names."""
    names = names_in_metadata(source.model)
    if not names or not any(named.values()):
        return None
    number_of = {plain_name(name): number for number, name in names.items()}
    known = {number: plain_name(name) for number, name in named.items() if plain_name(name) in number_of}
    left = sorted(f"'{named.get(number) or number}'" for number in with_boxes if number not in known)
    if not known or (with_boxes and len(left) == len(with_boxes)):
        raise DataError(
            f"{path}: its classes {_some(left or list(map(repr, named.values())))} are not among the "
            f"model's, {_some(list(map(repr, names.values())))}; use the names of the model, or, if the "
            f"numbers match the model's, pass {source.metric.kind.name}:ids=yes"
        )
    classes = {number: number_of[name] for number, name in known.items()}
    shown = [f"{named[number]} is {classes[number]}" for number in sorted(known) if number in with_boxes]
    without = f", boxes of {_some(left)} are skipped" if left else ""
    return classes, f"classes by their names, {_some(shown)}{without}"


MAX_SHOWN_CLASSES = 4
"""Classes that a sentence names."""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN_CLASSES} more" if len(names) > MAX_SHOWN_CLASSES else ""
    return ", ".join(names[:MAX_SHOWN_CLASSES]) + more if names else "(none)"


def plain_name(name: str) -> str:
    """Return the name of a class in lower case, without punctuation and spaces, as two tools may write it."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _yolo(source: MetricSource, folder: Path, placement: str | None) -> TrueBoxes:
    if is_data_yaml(str(folder)):
        pictures_and_boxes = box_files(str(folder))
        files = {name: boxes for name, (_, boxes) in pictures_and_boxes.items() if boxes.is_file()}
        if not files:
            picture, boxes = next(iter(pictures_and_boxes.values()))
            raise DataError(f"{folder}: no picture has a file of boxes; that of {picture} would be {boxes}")
        pictures = {name: picture for name, (picture, _) in pictures_and_boxes.items()}
        key_of: Callable[[str], str] = str  # samples are named as the pictures of the data set
        advice = f"take the samples from it too, as --data {folder}"
    else:
        files = files_by_stem(folder, (".txt",))
        pictures, key_of = _pictures_of(source.data), unique_stems(str(folder))
        advice = f"name each after its sample, as in {next(iter(files))}.txt"
    classes, numbered = _classes_of_data_yaml(source, folder, files)
    target = input_size(source)
    placement = placement or ("letterbox" if pictures else "stretch")
    if placement in ("letterbox", "top-left") and not pictures:
        raise ConfigError(
            f"metric '{source.metric.text}': a letterbox needs the sizes of the pictures; give the pictures "
            "themselves as data"
        )
    samples_with_boxes = 0

    def of_sample(place: Place, rows: int) -> list[Boxes]:
        if rows != 1:
            raise DataError(
                f"{folder}: sample {place.name} contains {rows} pictures; give one picture per sample"
            )
        key = key_of(place.name)
        if key not in files:  # a picture without objects has no file
            return [boxes_of(np.zeros((0, 4)), np.zeros(0, np.int64))]
        nonlocal samples_with_boxes
        samples_with_boxes += 1
        size = target if placement in ("stretch", "input") else _picture_size(pictures, key)
        shares = _read_yolo(files[key])
        corners = boxes_in_input(shares.corners * np.tile(size, 2), size, target, placement or "stretch")
        if classes is None:
            return [replace(shares, corners=corners)]
        numbers = np.array([classes.get(int(kind), -1) for kind in shares.classes], np.int64)
        return [replace(shares, corners=corners, classes=numbers).subset(numbers >= 0)]

    def check_rows(rows: int, cut: bool) -> None:
        if not samples_with_boxes:
            raise DataError(f"{folder}: no file has the name of a sample; {advice}")

    assumed = f"true boxes are shares of pictures in placement {placement}{numbered}"
    return TrueBoxes(of_sample, check_rows, assumed)


def _pictures_of(data: DataLike | None) -> dict[str, Path]:
    """Return the pictures behind samples, by the stems of their names; {} for samples of another kind."""
    place = place_of_data(data)
    with suppress(DataError):
        return {stem_of(file.name): Path(file.location) for file in image_files(place)} if place else {}
    return {}


def _classes_of_data_yaml(
    source: MetricSource, file: Path, boxes: Mapping[str, Path]
) -> tuple[dict[int, int] | None, str]:
    """Return the model's classes for the numbers of a `data.yaml`, if they differ, and a sentence."""
    if not is_data_yaml(str(file)) or source.metric.options["ids"]:
        return None, ""
    named = data_yaml_names(str(file))
    model = names_in_metadata(source.model)
    if not named or all(plain_name(model.get(number, "")) == plain_name(n) for number, n in named.items()):
        return None, ""
    with_boxes = {int(kind) for path in boxes.values() for kind in _read_yolo(path).classes}
    found = _classes_by_name(source, file, named, with_boxes)
    return (None, "") if found is None else (found[0], f"; {found[1]}")


def _picture_size(pictures: Mapping[str, Path], name: str) -> tuple[int, int]:
    if name not in pictures:
        raise DataError(f"{name}: the data have no such picture; name its file of boxes after a picture")
    try:
        with library("PIL.Image", str(pictures[name]), "metrics").open(pictures[name]) as picture:
            size: tuple[int, int] = picture.size
            return size
    except OSError as error:
        raise DataError(f"{pictures[name]}: cannot be read as a picture; check the file") from error


def _read_yolo(file: Path) -> Boxes:
    """Return the boxes of a file: class, centre and size as shares, one a line; corners as shares."""
    lines = [line.split() for line in read_text(str(file)).splitlines() if line.strip()]
    try:
        values = np.array([[float(cell) for cell in line[:5]] for line in lines], np.float64).reshape(-1, 5)
        if not np.isfinite(values).all():
            raise ValueError("a number is not finite")
    except ValueError as error:
        raise DataError(
            f"{file}: is not a list of boxes ({error}); write class, centre and size as fractions, one box "
            "per line"
        ) from error
    centre, half = values[:, 1:3], values[:, 3:5] / 2.0
    return boxes_of(np.concatenate([centre - half, centre + half], axis=1), values[:, 0].astype(np.int64))

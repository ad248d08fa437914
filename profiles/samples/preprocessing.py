"""How data is prepared for a model: a built-in recipe, a recipe file, or a file of Hugging Face's.

A recipe is a YAML file with the key `reader` (image, text, audio, table, ...) and the keys of that reader.
Each reader defines and checks its own keys. `base` names a built-in recipe that supplies the missing keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from ..base.errors import ConfigError, MalformedError, nearest
from ..base.json_values import parse_json
from ..base.options import sentences_of
from ..base.output_files import read_text
from ..base.strict_yaml import parse

R = TypeVar("R")

RECIPE = "recipe"
PREPROCESSOR_CONFIG = "preprocessor_config.json"
TOKENIZER = "tokenizer.json"

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
CLIP = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}

BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    # torchvision's ImageClassification preset of most weights: 256 for 224, the same share for other sizes.
    "imagenet": {"reader": "image", "resize": "shorter", "crop_share": 0.875, "crop": "center", **IMAGENET},
    # openai/clip: bicubic to the size, then the centre.
    "clip": {"reader": "image", "resize": "shorter", "interpolation": "bicubic", "crop": "center", **CLIP},
    # ultralytics: the whole picture, grey borders, 0..1.
    "yolo": {"reader": "image", "resize": "letterbox", "fill": 114, "antialias": False},
    # exactly the size, 0..255.
    "raw": {"reader": "image", "resize": "exact", "scale": 1.0},
}
"""Recipes with a name. A new one is one entry here."""
STATE = "OUTPUT: INPUT for each state that a step passes to the next, as present.*: past_key_values.*"
"""Description of the key `state` of any recipe."""
MAX_SHOWN_CHARACTERS = 100
"""Characters of a wrong word that a message repeats."""
SIZE = r"[1-9][0-9]{0,4}(x[1-9][0-9]{0,4})?"
"""Size after the name of a built-in recipe: pixels, one number or height and width."""


@dataclass(frozen=True)
class Preprocessing:
    """How data is prepared."""

    name: str = ""
    reader: str = ""
    kind: str = RECIPE
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    path: Path | None = None
    # output: input; names with one *, or none
    state: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    label: str = ""  # column of a table that is no input, as --labels says


def load_preprocessing(text: str | None) -> Preprocessing:
    """Return the preprocessing that `--preprocess` names: a recipe (imagenet:192x256), or a file."""
    if text is None:
        return Preprocessing()
    name, _, size = text.partition(":")
    if name in BUILT_IN and (not size or re.fullmatch(SIZE, size)):
        sides = {"size": [int(side) for side in (size.split("x") * 2)[:2]]} if size else {}
        return _of_recipe(text, {**BUILT_IN[name], **sides}, None)
    path = Path(text)
    if not os.path.isfile(text):  # also for a name that is too long
        names = ", ".join(BUILT_IN)
        given = text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]} ..."
        raise ConfigError(
            f"--preprocess {given}: no built-in recipe ({names}) and no such file; choose a recipe, or give "
            f"a recipe file, preprocessor_config.json or tokenizer.json.{nearest(text, BUILT_IN)}"
        )
    content = read_text(path, ConfigError)
    try:
        document = parse_json(content) if path.suffix.lower() == ".json" else parse(content)
    except MalformedError as problem:
        raise ConfigError(problem.message(path, "correct it")) from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: contains no keys and values; see 'qprof schema preprocess'")
    if "reader" in document or "base" in document:
        return _of_recipe(text, document, path)
    if "added_tokens" in document or ("model" in document and "pre_tokenizer" in document):
        return Preprocessing(text, "text", TOKENIZER, document, path)
    if document.keys() & {"image_processor_type", "image_mean", "do_resize", "do_rescale", "do_normalize"}:
        return Preprocessing(text, "image", PREPROCESSOR_CONFIG, document, path)
    if "feature_extractor_type" in document or "sampling_rate" in document:
        return Preprocessing(text, "audio", PREPROCESSOR_CONFIG, document, path)
    raise ConfigError(
        f"{path}: has no key 'reader', and is not a preprocessor_config.json or tokenizer.json; begin it "
        "with the line 'reader: image' (or text, audio, table), see 'qprof schema preprocess'"
    )


def recipe_of(preprocessing: Preprocessing, record: type[R]) -> R:
    """Return the settings as a record of a reader, whose docstring says which values are allowed."""
    hints = get_type_hints(record, include_extras=True)
    for key, value in preprocessing.settings.items():
        where = f"{preprocessing.name}: {key}"
        if key not in hints:
            raise ConfigError(
                f"{where}: is not a key of a recipe with reader {preprocessing.reader}; known are "
                f"{', '.join(hints)}.{nearest(key, hints)}"
            )
        try:
            msgspec.convert(value, hints[key])
        except msgspec.ValidationError:
            metas = [meta.description for meta in get_args(hints[key]) if isinstance(meta, msgspec.Meta)]
            allowed = sentences_of(record.__doc__ or "").get(key) or next(iter(metas), "another value")
            raise ConfigError(f"{where}: {value!r} is not allowed; give {allowed}") from None
    return msgspec.convert(dict(preprocessing.settings), record)


def recipe_file(text: str | os.PathLike[str] | None) -> Path | None:
    """Return the file that `--preprocess` names; None for a built-in recipe, and for nothing."""
    return None if text is None or os.fspath(text).partition(":")[0] in BUILT_IN else Path(text)


def _of_recipe(name: str, document: Mapping[str, Any], path: Path | None) -> Preprocessing:
    base = document.get("base")
    if base is not None and (not isinstance(base, str) or base not in BUILT_IN):
        raise ConfigError(f"{name}: base: {base!r} is not a built-in recipe; give {' or '.join(BUILT_IN)}")
    document = {**BUILT_IN.get(base or "", {}), **document}
    reader = document["reader"]
    if not isinstance(reader, str):
        raise ConfigError(f"{name}: reader: is {reader!r}; give image, text, audio or table")
    state = document.get("state") or {}
    if not isinstance(state, dict) or not all(
        isinstance(text, str) for pair in state.items() for text in pair
    ):
        raise ConfigError(f"{name}: state: {state!r} is not allowed; give {STATE}")
    settings = {key: value for key, value in document.items() if key not in ("reader", "base", "state")}
    return Preprocessing(name, reader, RECIPE, settings, path, state)

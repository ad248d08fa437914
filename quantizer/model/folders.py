"""Folders that hold a model, as exporters write them: the ONNX file, its weights, tokenizer and settings.

Names alone are looked at, and the library json: the command line imports it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from ...profiles.base.errors import ModelError

SETTINGS = "genai_config.json"
"""What onnxruntime-genai's builder writes; it names the file of the decoder."""

USUAL = ("model.onnx", "onnx/model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
"""What optimum and the pages of onnx-community call the file of a model, the first that is there."""


def model_in(path: str | os.PathLike[str]) -> Path:
    """Return the ONNX file of a folder; a path that is no folder as it is.

    It is the file that the settings of onnxruntime-genai name, one with a usual name, or the only one.

    Raises:
        ModelError: the folder has none, or several and none of these names.
    """
    folder = Path(path)
    if not folder.is_dir():
        return folder
    named = []
    with suppress(OSError, ValueError, TypeError, KeyError):
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        named.append(str(settings["model"]["decoder"]["filename"]))
    for name in (*named, *USUAL):
        if (folder / name).is_file():
            return folder / name
    found = sorted(file.name for file in folder.glob("*.onnx"))
    if len(found) == 1:
        return folder / found[0]
    held = f"several ({', '.join(found)})" if found else "none"
    raise ModelError(
        f"{folder}: of a folder the model is model.onnx or its only .onnx file, and it holds {held}; "
        "name the file"
    )

"""Names of model files: which file of a folder is the model, and what a quantized model is called.

Exporters write a folder with the ONNX file, its weights, tokenizer and settings. The command line imports
this module, which imports little.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from ...profiles.base.errors import ModelError

USUAL_FILES = ("model.onnx", "onnx/model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
"""What optimum and the pages of onnx-community call the file of a model; the first that exists is taken."""


def model_in(path: str | os.PathLike[str]) -> Path:
    """Return the ONNX file of a folder; a path that is no folder as it is.

    It is the file that the settings of onnxruntime-genai name, one with a usual name, or the only one.

    Raises:
        ModelError: the folder has none, or several and none of these names.
    """
    folder = Path(path)
    if not folder.is_dir():
        return folder
    names = [*USUAL_FILES]
    with suppress(OSError, ValueError, TypeError, KeyError):
        settings = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
        names.insert(0, str(settings["model"]["decoder"]["filename"]))
    for name in names:
        if (folder / name).is_file():
            return folder / name
    onnx_files = sorted(file.name for file in folder.glob("*.onnx"))
    if len(onnx_files) == 1:
        return folder / onnx_files[0]
    held = f"several ({', '.join(onnx_files)})" if onnx_files else "none"
    raise ModelError(
        f"{folder}: of a folder the model is model.onnx or its only .onnx file, and it holds {held}; "
        "name the file"
    )


def quantized_name(name: str) -> str:
    """Return the name of the file of a quantized model that has none, made of the float model's."""
    return f"{Path(name).stem or 'model'}.int8.onnx"

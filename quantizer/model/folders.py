"""The model's file in a folder, and the names of quantized files; the command line imports this."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...profiles.base.errors import ModelError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.json_values import settings_beside
from ...profiles.base.tool import note

USUAL_FILES = ("model.onnx", "onnx/model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
"""Usual names of model files by optimum and onnx-community; the first that exists is used."""

ENCODER = "encoder_model.onnx"
DECODERS = ("decoder_model_merged.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")
"""What optimum calls the files of an encoder and its decoder: merged, for the first token, for the others."""


def model_in(path: str | os.PathLike[str]) -> Path:
    """Return the ONNX file of a folder, by genai's settings, a usual name or as the only one."""
    folder = Path(path)
    if not folder.is_dir():
        return folder
    onnx_files = sorted(file.name for file in folder.glob("*.onnx"))
    if command := _join_command(folder, onnx_files):
        raise ModelError(
            f"{folder}: contains an encoder and its decoder, one model in several files; join them with "
            f"{command}, or name one of the files"
        )
    named = _named_by_settings(folder)
    for name in (*([] if named is None else [named]), *USUAL_FILES):
        if os.path.isfile(folder / name):
            return folder / name
    if len(onnx_files) == 1:
        return folder / onnx_files[0]
    held = f"several ({', '.join(onnx_files)})" if onnx_files else "none"
    raise ModelError(
        f"{folder}: the model of a folder is model.onnx or its only .onnx file, and this folder contains "
        f"{held}; name the file"
    )


def _join_command(folder: Path, files: Sequence[str]) -> str:
    """Return the command that makes one model of an encoder and its decoder with optimum's names, or ""."""
    if ENCODER not in files:
        return ""
    decoders = [name for name in DECODERS if name in files]
    parts = [ENCODER, *(DECODERS[:1] if DECODERS[0] in decoders else decoders)]
    paths = " ".join(shlex.quote(str(folder / name)) for name in parts)
    return f"qprof join {paths} -o whole.onnx" if decoders else ""


SETTINGS = "genai_config.json"
"""Settings of onnxruntime-genai, in the folder of a model."""


def _named_by_settings(folder: Path) -> str | None:
    """Return the file that the settings name, in their folder or, as links to a store, their target's."""
    value: Any = settings_beside(folder / SETTINGS)
    for key in ("model", "decoder", "filename"):
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return None
    if isinstance(value, str) and "\0" not in value:
        real = os.path.realpath(folder / value)
        stores = (os.path.realpath(folder), os.path.dirname(os.path.realpath(folder / SETTINGS)))
        is_inside = is_within(os.path.abspath(folder / value), os.path.abspath(folder))
        if is_inside and any(is_within(real, store) for store in stores):
            return value
    settings = str(folder / SETTINGS)
    sentence = f"{settings}: names no file in the folder; passed over"
    note(Finding(Code.FILE_PASSED_OVER, sentence, settings))
    return None


def is_within(path: str, folder: str) -> bool:
    """Return whether an absolute path is in a folder; only names are looked at."""
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # another drive
        return False


def quantized_name(name: str) -> str:
    """Return a default name for the file of a quantized model, from the float model's name."""
    return f"{Path(name).stem or 'model'}.int8.onnx"


PLAN, PROFILE = "plan.yaml", "profile.yaml"
"""Names of the plan and the profile in the folder of a model."""


def qprof_folder(model: str | os.PathLike[str]) -> Path:
    """Return the folder MODEL.qprof beside a model, for its plan, profile, check samples and report."""
    return Path(f"{os.fspath(model).removesuffix('.onnx')}.qprof")

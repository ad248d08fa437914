"""Running models in onnxruntime with qprof's errors: sessions, their interface, and one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ...profiles.errors import ModelError
from ...profiles.session import RUNTIME_ERRORS, first_line
from ..modelfile import external_files

Feed = Mapping[str, npt.NDArray[np.generic]]


def open_session(model: str | bytes, name: str, threads: int = 1) -> ort.InferenceSession:
    """Return a session on the CPU with all graph optimisations.

    Args:
        model: path, or the bytes of a model without external data.
        name: what errors call it.
        threads: threads inside an operator; operators run one after another.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Two sessions share the cores: the one that has just run must not go on spinning.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except RUNTIME_ERRORS as error:
        raise ModelError(f"{name}: onnxruntime cannot load it: {first_line(error)}") from error


def run(session: ort.InferenceSession, outputs: Sequence[str], feed: Feed, where: str) -> list[Any]:
    """Return the values of `outputs` for one feed.

    Raises:
        ModelError: onnxruntime fails; `where` names model and sample.
    """
    try:
        return list(session.run(list(outputs), dict(feed)))
    except RUNTIME_ERRORS as error:
        raise ModelError(f"{where}: onnxruntime cannot run it: {first_line(error)}") from error


@dataclass(frozen=True)
class Pair:
    """A float and a quantized model, ready to run on the same feeds.

    Attributes:
        float_name, quantized_name: what errors call them.
        float_session, quantized_session: their sessions.
        outputs: names, in the order of the float model.
        float_outputs: those of them that are floating-point.
        threads: threads inside an operator.
    """

    float_name: str
    quantized_name: str
    float_session: ort.InferenceSession
    quantized_session: ort.InferenceSession
    outputs: tuple[str, ...]
    float_outputs: tuple[str, ...]
    threads: int

    def run_float(self, feed: Feed, sample: str) -> dict[str, Any]:
        """Return the float model's outputs by name; raises as `run` does."""
        found = run(self.float_session, self.outputs, feed, f"{self.float_name}, sample {sample}")
        return dict(zip(self.outputs, found, strict=True))

    def run_quantized(self, feed: Feed, sample: str) -> dict[str, Any]:
        """Return the quantized model's outputs by name; raises as `run` does."""
        found = run(self.quantized_session, self.outputs, feed, f"{self.quantized_name}, sample {sample}")
        return dict(zip(self.outputs, found, strict=True))


def open_pair(float_path: str | Path, quantized_path: str | Path, threads: int = 1) -> Pair:
    """Return both models, ready to run.

    Raises:
        ModelError: one cannot be loaded, an output is not a tensor, or inputs or outputs of the two differ in
            name or in the kind of their elements.
    """
    a, b = str(float_path), str(quantized_path)
    floats, quantized = open_session(a, a, threads), open_session(b, b, threads)
    for what, mine, theirs in (
        ("input", floats.get_inputs(), quantized.get_inputs()),
        ("output", floats.get_outputs(), quantized.get_outputs()),
    ):
        _check_same(what, {i.name: i.type for i in mine}, {i.name: i.type for i in theirs}, a, b)
    outputs = floats.get_outputs()
    names = tuple(o.name for o in outputs)
    return Pair(
        a, b, floats, quantized, names, tuple(o.name for o in outputs if _kind(o.type) == "float"), threads
    )


def _check_same(what: str, mine: Mapping[str, str], theirs: Mapping[str, str], a: str, b: str) -> None:
    for name in mine:
        if name not in theirs:
            raise ModelError(
                f"{b}: has no {what} '{name}', which {a} has; compare a model with its own quantized form"
            )
    for name in theirs:
        if name not in mine:
            raise ModelError(
                f"{b}: has {what} '{name}', which {a} has not; compare a model with its own quantized form"
            )
    for name, kind in mine.items():
        if not kind.startswith("tensor("):
            raise ModelError(f"{a}: {what} '{name}' is a {kind}; only tensors can be compared")
        if kind != theirs[name] and not (what == "output" and _kind(kind) == _kind(theirs[name])):
            raise ModelError(f"{b}: {what} '{name}' is a {theirs[name]}, in {a} it is a {kind}")


def _kind(type_text: str) -> str:
    """Return "float" for every floating-point tensor, and the type itself for others."""
    return (
        "float"
        if type_text in ("tensor(float)", "tensor(float16)", "tensor(double)", "tensor(bfloat16)")
        else type_text
    )


def model_bytes(path: str | Path) -> int:
    """Return the size of a model in bytes, files of external data included, each once.

    Raises:
        ModelError: a file is missing, or the model is not ONNX.
    """
    try:
        files = {Path(path).resolve(), *(file.resolve() for file in external_files(path))}
        return sum(file.stat().st_size for file in sorted(files))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot tell its size: {error.filename or ''}: {error.strerror or error}"
        ) from error

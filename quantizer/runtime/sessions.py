"""Running models in onnxruntime with qprof's errors: sessions, their interface, and one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ...profiles.base.errors import ModelError
from ...profiles.runtime.refusals import RUNTIME_ERRORS, first_line

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

"""Running models in onnxruntime with qprof's errors: session options, sessions, one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ...profiles.base.errors import ConfigError, ModelError
from ...profiles.runtime.custom_operators import loaded_libraries, new_session, new_session_options
from ...profiles.runtime.providers import CPU
from ...profiles.runtime.refusals import RUNTIME_ERRORS, first_line, load_refusal

Inputs = Mapping[str, npt.NDArray[np.generic]]
"""The arrays of one sample by input name."""


MOST_THREADS = 256
"""More help no operator, and onnxruntime starts each at once: with thousands it never ends."""


def session_options(threads: int) -> ort.SessionOptions:
    """Return the options that every measured session has.

    Args:
        threads: threads inside an operator; operators run one after another.

    Raises:
        ConfigError: no number of threads that a machine has.
    """
    if not 0 <= threads <= MOST_THREADS:
        raise ConfigError(f"threads: {threads} is not 0 to {MOST_THREADS}; give the number of cores to use")
    options = new_session_options()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, and say it in one line
    # Two sessions share the cores: the one that has just run must not go on spinning.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def open_session(
    model: str | bytes,
    name: str,
    threads: int = 1,
    options: ort.SessionOptions | None = None,
    provider: str = CPU,
) -> ort.InferenceSession:
    """Return a session with all graph optimisations.

    Args:
        model: path, or the bytes of a model without external data.
        name: what errors call it.
        threads: threads inside an operator.
        options: instead of `session_options(threads)`.
        provider: full name of the execution provider, see `check_provider`.

    Raises:
        ConfigError: the provider does not start on this machine.
        ModelError: onnxruntime refuses the model.
    """
    chosen = session_options(threads) if options is None else options
    try:
        return new_session(model, chosen, provider)
    except RUNTIME_ERRORS as error:
        raise ModelError(load_refusal(name, error, loaded_libraries())) from error


def run(session: ort.InferenceSession, outputs: Sequence[str], inputs: Inputs, where: str) -> list[Any]:
    """Return the values of `outputs` for one sample.

    Raises:
        ModelError: the runtime fails; `where` names model and sample.
    """
    try:
        return list(session.run(list(outputs), dict(inputs)))
    except RUNTIME_ERRORS as error:
        runtime = getattr(session, "runtime_title", "onnxruntime")
        raise ModelError(
            f"{where}: {runtime} cannot run it: {first_line(error)}; check model and sample"
        ) from error

"""A metric of the user's own: a function of outputs and indices."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ....profiles.base.errors import ConfigError, DataError
from ....profiles.samples.functions import load_function, user_code
from .metric import Figures, Metric, Outputs, mean_of
from .table import USER_FUNCTION

MetricFunction: TypeAlias = Callable[[Sequence[Outputs], Sequence[int]], object]
"""Takes the outputs of a model (a dict by name for each sample) and the indices of the samples in the data;
returns a score from 0 to 100 for each, higher is better. Limits on it and on its drop are in its unit."""


def user_metric(metric: str | MetricFunction) -> Metric:
    """Return the metric of a user's function, or of "module:function"."""
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", type(metric).__name__)
    if isinstance(metric, str) and ":" not in metric:
        raise ConfigError(f"--metric {name}: names no function; name one as module:function")
    function: Callable[..., object] = load_function(metric) if isinstance(metric, str) else metric

    def figures(kept: Sequence[tuple[int, Outputs]]) -> Figures:
        indices, outputs = [index for index, _ in kept], [values for _, values in kept]
        with user_code(f"--metric {name}"):
            scores = function(outputs, indices)
        try:
            values = np.asarray(scores, np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"--metric {name}: returned no numbers ({error}); return one score for each sample"
            ) from error
        if values.shape != (len(kept),) or not ((values >= 0.0) & (values <= 100.0)).all():
            shown = f"an array of shape {list(values.shape)}"
            if values.size and values.ndim == 1:
                shown = f"{values.size} scores from {values.min():g} to {values.max():g}"
            raise DataError(
                f"--metric {name}: returned {shown} for {len(kept)} samples; "
                "return one score for each sample, from 0 to 100"
            )
        return mean_of(values)

    return Metric(
        name=name,
        title=f"metric {name}",
        kind=replace(USER_FUNCTION, name=name),
        truth=lambda place, floats: (place.index, 0),
        scored=lambda index, outputs: (index, outputs),
        figures=figures,
        digest=hashlib.sha256(_code(function)).hexdigest()[:16],
    )


def _code(function: Callable[..., object]) -> bytes:
    """Return the source of the module that a function is defined in, or else its name."""
    defined = inspect.unwrap(function)
    if isinstance(defined, partial):
        return _code(defined.func) + repr((defined.args, defined.keywords)).encode()
    kind = defined if inspect.isroutine(defined) or inspect.isclass(defined) else type(defined)
    with suppress(OSError, TypeError):
        return Path(inspect.getfile(kind)).read_bytes()
    return kind.__qualname__.encode()

"""The tasks' scores as `qprof tune --metric metrics:NAME` takes them: a score of 0 to 100 for each sample.

The function of a model is asked for by its name with `_` for `-`; the work folder is in QPROF_BENCHMARKS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import models
import numpy as np
from frame import WORK
from record import make_data


def __getattr__(name: str) -> Callable[[Sequence[Mapping[str, np.ndarray]], Sequence[int]], list[float]]:
    known = {model.replace("-", "_"): model for model in models.REAL}
    if name not in known:
        raise AttributeError(f"no model {name}; models are {', '.join(known)}")
    model = models.load(known[name])
    split, count = make_data(model, Path(os.environ[WORK])).tuning, model.count
    if split is None or count is None:
        raise AttributeError(f"{name} has no samples to tune on")
    labels = split.labels

    def score(outputs: Sequence[Mapping[str, np.ndarray]], indices: Sequence[int]) -> list[float]:
        units = np.asarray(
            count([list(values.values()) for values in outputs], [labels[index] for index in indices]),
            np.float64,
        )
        return [100 * min(1.0, max(0.0, model.score(unit).value)) for unit in units]

    return score

"""Samples for a model: those of a source, with the states that the model itself hands from step to step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..base.errors import QprofError
from ..base.output_files import temporary_folder
from ..samples.objects import DataLike
from ..samples.samples import folder_of, input_specs, open_samples, output_specs, rows_of
from ..samples.states import Arrays, FloatModel, Run
from ..samples.values import Sample, Samples
from .session import plain_session, run_sample


def model_samples(
    data: DataLike, model: ir.Model, limit: int | None = None, *, by_row: bool = False, notes: bool = True
) -> Samples:
    """Return the samples of a source, in a fixed order; states come from the float model, on one thread."""
    return open_samples(data, input_specs(model), limit, by_row=by_row, notes=notes, model=float_model(model))


SAME_POWER = 1e-3
"""Power of the difference of outputs over that of the signal: kernels add in another order with more rows."""


def rows_stand_alone(model: ir.Model, batch: Sample) -> bool:
    """Return whether the rows of a batch have the same outputs if each is run by itself.

    If they fail or have others, the first axis is one of time. Only the first and the last row are run.
    """
    first, *_, last = rows_of(batch, input_specs(model))
    names = [output.name for output in output_specs(model) if output.dtype.kind == "f"]
    with float_model(model).opened() as run, suppress(QprofError, ValueError):
        outputs = zip(*(run(part, names).values() for part in (batch, first, last)), strict=True)
        return all(_are_ends(*values) for values in outputs)
    return False


def _are_ends(whole: npt.NDArray[Any], first: npt.NDArray[Any], last: npt.NDArray[Any]) -> bool:
    """Tell whether two rows are the ends of an output."""
    ends, rows = np.concatenate([whole[:1], whole[-1:]]), np.concatenate([first, last])
    noise, signal = (np.square(np.nan_to_num(v.astype(np.float64))).sum() for v in (ends - rows, ends))
    return bool(ends.shape == rows.shape and noise <= SAME_POWER * signal)


def float_model(model: ir.Model) -> FloatModel:
    """Return the parts of a model that samples need: only outputs that are tensors can be states."""

    @contextmanager
    def opened() -> Iterator[Run]:
        with temporary_folder() as folder:
            session = plain_session(model, Path(folder))

            def run(sample: Sample, names: Sequence[str]) -> Arrays:
                results = run_sample(session, names, sample)
                return {name: np.asarray(values) for name, values in results.items()}

            yield run

    return FloatModel(output_specs(model), opened, folder_of(model))

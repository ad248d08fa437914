"""Samples for a model: those of a source, with the states that the model itself hands from step to step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx_ir as ir

from ..base.output_files import temporary_folder
from ..samples.objects import DataLike
from ..samples.samples import folder_of, input_specs, open_samples, output_specs
from ..samples.states import Arrays, FloatModel, Run
from ..samples.values import Sample, Samples
from .session import plain_session, run_sample


def model_samples(
    data: DataLike, model: ir.Model, limit: int | None = None, *, by_row: bool = False, notes: bool = True
) -> Samples:
    """Return the samples of a source, in a fixed order; states come from the float model, on one thread."""
    return open_samples(data, input_specs(model), limit, by_row=by_row, notes=notes, model=float_model(model))


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

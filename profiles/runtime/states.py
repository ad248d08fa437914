"""Samples for a model: those of a source, with the states that the model itself hands from step to step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir

from ..samples.objects import DataLike
from ..samples.samples import folder_of, input_specs, open_samples
from ..samples.states import Arrays, FloatModel, Run
from ..samples.values import InputSpec, Sample, Samples
from .session import plain_session, run_sample


def model_samples(
    data: DataLike,
    model: ir.Model,
    limit: int | None = None,
    *,
    by_row: bool = False,
    notes: bool = True,
) -> Samples:
    """Return the samples of a source for a model, in a fixed order; see `open_samples`.

    Where a state goes from step to step the float model runs while they are read: on the CPU and on one
    thread, so that the same machine gives the same states.

    Args:
        data: the source.
        model: the float model.
        limit, by_row, notes: as in `open_samples`.

    Raises:
        DataError, ConfigError: as `open_samples` does. While iterating: ModelError, too, if onnxruntime
            refuses the model.
    """
    return open_samples(data, input_specs(model), limit, by_row=by_row, notes=notes, model=float_model(model))


def float_model(model: ir.Model) -> FloatModel:
    """Return what fills in the states of samples."""
    return FloatModel(_outputs(model), partial(_opened, model), folder_of(model))


def _outputs(model: ir.Model) -> tuple[InputSpec, ...]:
    """Return what a model gives, but for outputs that are no tensors or of a type that nobody knows."""
    found = []
    for value in model.graph.outputs:
        if isinstance(value.type, ir.TensorType):
            sizes = (
                None if value.shape is None else (d if isinstance(d, int) else d.value for d in value.shape)
            )
            shape = None if sizes is None else tuple(sizes)
            found.append(InputSpec(str(value.name), value.type.dtype.numpy(), shape))
    return tuple(found)


@contextmanager
def _opened(model: ir.Model) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        session = plain_session(model, Path(folder))

        def run(sample: Sample, outputs: Sequence[str]) -> Arrays:
            return {name: np.asarray(values) for name, values in run_sample(session, outputs, sample).items()}

        yield run

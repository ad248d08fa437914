"""Samples in memory, with the float model's outputs on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import DataError
from ...profiles.runner.sample_pass import map_in_threads
from ...profiles.runtime.states import model_samples
from ...profiles.samples.objects import DataLike, source_name
from ...profiles.samples.states import runs_with_own_state
from ...profiles.samples.values import Sample
from ..evaluation.metrics.metric import Outputs
from ..evaluation.runtimes import run


@dataclass(frozen=True, eq=False)
class RunSamples:
    """Samples with the float model's outputs on them, all in memory."""

    samples: tuple[Sample, ...]
    float_outputs: tuple[Outputs, ...]  # of the float model, in the order of the samples
    _: KW_ONLY
    quantized: tuple[Outputs, ...] = ()  # of the plan's model; () if it was not run
    # Input -> output of the model's own step before; none where each sample has the float model's state.
    state: Mapping[str, str] = field(default_factory=dict)

    def subset(self, positions: Sequence[int]) -> RunSamples:
        """Return the samples at some positions."""
        return replace(
            self,
            samples=tuple(self.samples[i] for i in positions),
            float_outputs=tuple(self.float_outputs[i] for i in positions),
            quantized=tuple(self.quantized[i] for i in positions if self.quantized),
        )

    def outputs(self, session: ort.InferenceSession, name: str) -> list[Outputs]:
        """Return the outputs of a model on the samples, fed its own state; see `outputs_of`."""
        return outputs_of(session, self.samples, name, state=self.state)


def outputs_of(
    session: ort.InferenceSession,
    samples: Sequence[Sample],
    name: str,
    side_by_side: int = 1,
    state: Mapping[str, str] = MappingProxyType({}),
) -> list[Outputs]:
    """Return the outputs of a model on samples that are arrays, no sequences or maps; raises ModelError."""
    names = [output.name for output in session.get_outputs()]

    def outputs(sample: Sample) -> Outputs:
        values = run(session, names, sample.arrays, f"{name}, sample {sample.name}")
        pairs = zip(names, values, strict=True)
        return {name: value for name, value in pairs if isinstance(value, np.ndarray)}

    if state:
        return list(runs_with_own_state(samples, state, outputs))
    if side_by_side == 1:
        return [outputs(sample) for sample in samples]
    return list(map_in_threads(outputs, samples, side_by_side))


def run_samples(session: ort.InferenceSession, model: ir.Model, data: DataLike, limit: int) -> RunSamples:
    """Read the first `limit` samples and run the float model on them."""
    samples = samples_in_memory(model, data, limit, notes=False)
    return RunSamples(samples, tuple(outputs_of(session, samples, "float model")))


def samples_in_memory(
    model: ir.Model, data: DataLike, limit: int | None, *, notes: bool = True
) -> tuple[Sample, ...]:
    """Return the first `limit` samples; DataError without samples."""
    samples = tuple(model_samples(data, model, limit, notes=notes))
    if not samples:
        raise DataError(f"{source_name(data)}: no samples; give at least one")
    return samples

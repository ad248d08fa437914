"""A model made ready for calibration: what onnxruntime runs, with the observed tensors as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir

from ..instrumentation.input_facts import InputFacts, input_facts, input_observations
from ..instrumentation.live_memory import order_by_need
from ..instrumentation.observations import Observation, observations
from ..instrumentation.tensor_outputs import with_outputs
from ..readers.values import InputSpec
from ..runtime.custom_operators import load_custom_operators
from ..runtime.profiling_session import OptimisedGraph, optimised
from ..samples.samples import input_specs
from .settings import RunSettings


@dataclass(frozen=True, eq=False)
class ProfilingModel:
    """A model that is ready to be profiled on one set of samples after another.

    Attributes:
        settings: of the run, checked.
        graph: what onnxruntime runs.
        observations: every observed tensor, in graph order.
        specs: inputs of the model.
        facts: what the model does with each of them first.
    """

    settings: RunSettings
    graph: OptimisedGraph
    observations: tuple[Observation, ...]
    specs: tuple[InputSpec, ...]
    facts: Mapping[str, InputFacts]

    @property
    def read(self) -> tuple[Observation, ...]:
        """The tensors that are read; the others have the same elements as one of these."""
        return tuple(observation for observation in self.observations if observation.same_as is None)


@contextmanager
def profiling_model(model: ir.Model, settings: RunSettings) -> Iterator[ProfilingModel]:
    """Yield a prepared model, made ready with these settings; raises as `calibrate` does."""
    settings = settings.checked()
    load_custom_operators(*settings.custom_ops)
    copy, observed = with_outputs(model, observations(model, settings.names, settings.axes))
    outputs = [observation.source for observation in observed if observation.source is not None]
    # Blocks of channels are read as they are, unless channels of another axis are recorded.
    ordered = {o.source for o in observed if o.axis is not None and not o.blocks_keep_channels}
    split = settings.memory_limit is not None
    with optimised(copy, outputs, settings.provider, split, ordered) as graph:
        if split:
            order_by_need(graph.model.graph)
        observed = (*observed, *input_observations(model, observed))
        facts = {str(value.name): input_facts(value) for value in model.graph.inputs}
        yield ProfilingModel(settings, graph, observed, tuple(input_specs(model)), facts)

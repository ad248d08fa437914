"""A profile of only the outputs, which decides their kinds if the model's own profile is missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import onnx_ir as ir

from ...profiles.base.improvement import improved
from ...profiles.instrumentation.subgraphs import hidden_tensors
from ...profiles.records.profile import DataId, ModelId, Profile
from ...profiles.runner.calibrate import calibrate
from ...profiles.runner.settings import RunSettings
from ...profiles.samples.values import Sample, Samples
from ..operators.graph import Graph
from .output_kinds import column_axes, tensors_of_kinds


def profile_of_outputs(
    model: ir.Model, graph: Graph, identity: ModelId, samples: Samples | Sequence[Sample]
) -> Profile:
    """Return the profile of outputs and their sources place by place; empty if the model cannot be run."""
    names = tensors_of_kinds(graph) - {*hidden_tensors(model)}
    columns = {name: axis for name, axis in column_axes(graph).items() if name in names}
    settings = RunSettings(tensors=names, channels=columns)
    make = partial(calibrate, model, samples, identity, settings)
    profile, _ = improved("profile of the outputs (their kinds)", make, Profile(identity, DataId(), {}))
    return profile

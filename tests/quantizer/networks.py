"""Small networks as ONNX text, profiled on seeded data: what the tests of planning plan for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import ModelProto, numpy_helper, parser
from qprof_onnx.profiles.records.profile import ModelId, Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise.propagation import NoiseFlow, NoiseGains, noise_flow
from qprof_onnx.quantizer.operators.graph import Graph, index
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.planning.weighted_channels import weighted_channels
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.target import Recipe


@dataclass(frozen=True)
class Network:
    """A prepared model with everything that planning needs."""

    model: ir.Model
    graph: Graph
    profile: Profile
    identity: ModelId

    @property
    def prepared(self) -> PreparedModel:
        """The model as it comes out of a file."""
        return PreparedModel(self.model, self.graph, self.identity, ())

    def plan(
        self, target: str = "onnxruntime-x86", facts: Mapping[str, Any] | None = None, **settings: object
    ) -> QuantPlan:
        """Return the plan for a target, some facts of which are otherwise, with these settings."""
        recipe = load_recipe(target, settings)
        return plan_alone(
            self.model, self.profile, replace(recipe, target=replace(recipe.target, **facts or {}))
        )


def plan_alone(
    model: ir.Model, profile: Profile, recipe: Recipe, *, start_everywhere: bool = False
) -> QuantPlan:
    """Return the plan of a prepared model node by node: no chain is one node, and nothing is adjusted."""
    prepared = PreparedModel(model, index(model), profile.model, ())
    if start_everywhere:
        config = replace(recipe.config, cost_model="off")
        recipe = replace(recipe, target=replace(recipe.target, start_everywhere=True), config=config)
    return make_plan(planning_facts(prepared, profile, recipe))


def flow_of(graph: Graph, profile: Profile, opset: int) -> NoiseFlow:
    """Return how noise reaches the tensors of a model at which it is judged."""
    gains = NoiseGains(graph, profile, opset)
    return noise_flow(gains, gains.judged_tensors())


def network(
    text: str,
    weights: Mapping[str, tuple[int, ...] | npt.NDArray[Any]],
    shape: tuple[int, ...] = (1, 8, 6, 6),
    opset: int = 17,
    dims: tuple[str | int, ...] = (),
) -> Network:
    """Return a network whose nodes are `text`, from input x to output y, with seeded weights.

    Args:
        text: the nodes.
        weights: name -> values, or the shape of random ones.
        shape: of the samples of x.
        opset: of the default domain.
        dims: of x in the model, where some are free.
    """
    declared = ",".join(map(str, dims or shape))
    proto: ModelProto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[{declared}] x) => (float[] y) {{ {text} }}'
    )
    rng = np.random.default_rng(11)
    for name, size in weights.items():
        drawn = isinstance(size, tuple)
        array = rng.standard_normal(size).astype(np.float32) if drawn else np.asarray(size)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    identity = model_id(model, "net.onnx")
    samples = [Sample(str(i), {"x": rng.standard_normal(shape).astype(np.float32)}) for i in range(3)]
    channels = weighted_channels(index(model))
    profile = calibrate(model, samples, identity, RunSettings(channels=channels))
    return Network(model, index(model), profile, identity)


WIDE = (8, 8, 3, 3)
"""A convolution of 72 products for each output element: heavy."""

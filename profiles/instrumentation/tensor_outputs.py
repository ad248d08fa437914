"""The observed tensors made outputs of the model: the edit that `observations` decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import onnx_ir as ir

from ..base.names import free_name
from .activations import readable_dtype
from .observations import Observation
from .subgraph_outputs import expose_subgraph_tensors
from .subgraphs import value_names


def with_outputs(
    model: ir.Model, observed: Iterable[Observation]
) -> tuple[ir.Model, tuple[Observation, ...]]:
    """Return a copy of a model with the observed tensors as outputs, and the observations with `source`.

    Args:
        model: unchanged.
        observed: see `observations`.
    """
    copy, observed = model.clone(), tuple(observed)
    read = [observation for observation in observed if observation.same_as is None]
    inner = {observation.name for observation in read if observation.scan_axes is not None}
    sources = expose_subgraph_tensors(copy, inner)
    sources |= _expose(copy, [observation for observation in read if observation.scan_axes is None])
    return copy, tuple(replace(o, source=sources.get(o.name)) for o in observed)


def _expose(model: ir.Model, observed: Iterable[Observation]) -> dict[str, str]:
    """Make tensors of the main graph outputs of the model, which is changed; return tensor -> output."""
    taken = value_names(model)
    values = {value.name: value for node in model.graph for value in node.outputs if value.name}
    outputs = {value.name for value in model.graph.outputs}
    sources: dict[str, str] = {}
    for observation in observed:
        value = values.get(observation.name)
        if value is None:  # a graph input
            continue
        dtype = readable_dtype(observation.dtype)
        if dtype != observation.dtype:
            node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))])
            value = node.outputs[0]
            value.name = free_name(f"{observation.name}:float", taken)
            taken.add(value.name)
            model.graph.append(node)
        if value.name not in outputs:
            model.graph.outputs.append(value)
        sources[observation.name] = str(value.name)
    return sources

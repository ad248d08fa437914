"""A prepared model whose inputs have fixed sizes: what depends on these alone is computed once.

Its fingerprint stays that of the prepared model: profile and plan belong to the model with any sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, nearest
from ..model.graph import index, name_of
from .opening import PreparedModel
from .prepare import improve


def fix_shapes(prepared: PreparedModel, shapes: Mapping[str, tuple[int, ...]]) -> PreparedModel:
    """Return the model with fixed sizes of inputs, the rest of it prepared for these.

    A dimension of another input, or another dimension, that has the same name is fixed too.

    Args:
        prepared: the model, which is left as it was.
        shapes: input -> its shape.

    Raises:
        ConfigError: an input is not there, or is not of this shape.
    """
    if not shapes:
        return prepared
    model = prepared.model.clone()
    inputs = {name_of(value): value for value in model.graph.inputs}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        for dim, size in zip(_declared(inputs, name, shape), shape, strict=True):
            known = sizes.setdefault(dim, size) if isinstance(dim, str) else size if dim is None else dim
            if known != size:
                raise ConfigError(
                    f"fix_shapes: input '{name}': a size is {known} already, not {size}; give the same"
                )
        inputs[name].shape = ir.Shape(shape)
    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape([sizes.get(_symbol(dim) or "", dim) for dim in value.shape])
    improve(model)
    return replace(prepared, model=model, graph=index(model))


def nodes_of_known_sizes(prepared: PreparedModel, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return the nodes that would not be computed in every run if inputs had these shapes, in graph order.

    Raises:
        ConfigError: see `fix_shapes`.
    """
    left = {name_of(node) for node in fix_shapes(prepared, shapes).graph.nodes}
    return tuple(name for name in map(name_of, prepared.graph.nodes) if name not in left)


def _declared(
    inputs: Mapping[str, ir.Value], name: str, shape: tuple[int, ...]
) -> tuple[int | str | None, ...]:
    """Return the dimensions of an input as the model has them: a size, a name, or None."""
    if name not in inputs:
        raise ConfigError(f"fix_shapes: the model has no input '{name}'.{nearest(name, tuple(inputs))}")
    declared = inputs[name].shape
    if declared is None:
        return (None,) * len(shape)
    if len(declared) != len(shape):
        raise ConfigError(
            f"fix_shapes: input '{name}' has {len(declared)} dimensions, not {len(shape)}; "
            "give a size for each"
        )
    return tuple(dim if isinstance(dim, int) else _symbol(dim) for dim in declared)


def _symbol(dim: int | ir.SymbolicDim) -> str | None:
    return None if isinstance(dim, int) else dim.value

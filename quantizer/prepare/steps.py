"""A step of preparation made of a change of one node."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import value_names
from ..model.editing import is_standard

Step = Callable[..., int]


def each(*op_types: str, backwards: bool = False) -> Callable[[Callable[..., int]], Step]:
    """Make a step of a change, which is given a standard node and the names in use; both return how much."""

    def step_of(change: Callable[..., int]) -> Step:
        @wraps(change)
        def step(model: ir.Model, **settings: bool) -> int:
            changed, taken = 0, set[str]()
            for node in reversed(list(model.graph)) if backwards else list(model.graph):
                if node.graph is not None and is_standard(node, *op_types):  # an earlier change may remove it
                    taken = taken or value_names(model)
                    changed += change(node, taken, **settings)
            return changed

        return step

    return step_of

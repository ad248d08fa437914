"""What the writers of this room have in common: which tensors of a plan a file holds, and in which types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ....profiles.base.errors import ConfigError
from ....profiles.base.tool import tool_name
from ...numerics.affine import INT32, QuantParams, unsigned_equivalent
from ...plan.plan import QuantPlan
from .entries import integer_type


def written_tensors(plan: QuantPlan, biases: bool = False) -> Iterator[tuple[str, QuantParams]]:
    """Yield the tensors of a plan that a file holds.

    Args:
        plan: the plan.
        biases: those of 32 bits too, which most converters make themselves.

    Raises:
        ConfigError: the parameters are those of weights that the plan changes, of which no file says how.
    """
    if plan.adjustments.equalization:
        raise ConfigError(
            "plan: its channels are equalized, so its parameters are not for the model's own weights, as the "
            "file's are; make the plan with '--equalization off'"
        )
    yield from ((name, p) for name, p in plan.tensors.items() if biases or p.qtype is not INT32)


def stored_type(params: QuantParams) -> QuantParams:
    """Return parameters whose type is the one that the values are stored in: of int7, int8."""
    qtype = integer_type(8, True) if params.qtype.storage != params.qtype.name else None
    return params if qtype is None else replace(params, qtype=qtype)


def stored_bits(params: QuantParams) -> QuantParams:
    """Return parameters of the same float values whose type is signed only with zero points 0."""
    params = stored_type(params)
    return unsigned_equivalent(params) if params.qtype.signed and any(params.zero_point) else params


def text_of(document: Mapping[str, object]) -> str:
    """Return a document as JSON, with who wrote it."""
    package, _, version = tool_name().partition(" ")
    signed = {"producer": {"package": package, "version": version}, **document}
    return json.dumps(signed, indent=1, ensure_ascii=False) + "\n"

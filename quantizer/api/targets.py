"""`operator_reference`: what a target does with each operator."""

from __future__ import annotations

from ..targets.loading import load_recipe
from ..targets.operator_page import OperatorReference, reference_of
from .keywords import TargetLike, recipe_of


def operator_reference(target: TargetLike | None = None) -> tuple[OperatorReference, ...]:
    """Return what becomes of each operator on a target, sorted by operator.

    Args:
        target: the default one for None.

    Raises:
        ConfigError: there is no such target.
    """
    return reference_of((recipe_of(target, {}) or load_recipe()).target)

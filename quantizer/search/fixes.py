"""Fixes of a model that is not good: proposed settings, in the order of trial. Pure.

Each fix is made like its command makes it, run on check samples, written, and judged on the held-out samples.
A change that gives the same plan, or no better model, is not a fix and is not printed. A budget of processor
seconds limits the number of fixes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..evaluation.grades import ORDER
from ..evaluation.latency import EVEN_RATIO
from ..numerics.affine import TYPES
from ..targets.config import FEW_BITS, QuantConfig
from ..targets.loading import Settings, goes_with, load_recipe, weight_only_settings
from ..targets.packaged import target_names
from ..targets.target import Recipe
from .verdict import Fix, Verdict
from .worth import is_in_vain

NEARLY = 1.25  # times the bytes of a poor model that one which is written in its place may have

SMALL_BLOCK = 32  # elements of a weight that share a scale where that is a fix

# Reset with the bits of weights.
OF_BITS: Settings = {"block_size": 0, "weight_schema": QuantConfig.weight_schema}
IN_INT8: Settings = {"mode": "static", "weight_type": "int8", **OF_BITS}


def is_not_faster(verdict: Verdict) -> bool:
    """Whether a good model has no arithmetic in int8, or is known not to be faster than float."""
    speedup = verdict.cost.speedup
    is_level = bool(verdict.composition.why_float) or (speedup is not None and speedup <= EVEN_RATIO)
    return verdict.grade == "good" and is_level


def is_better(verdict: Verdict, than: Verdict) -> bool:
    """Whether a model is better: by grade, or at the same grade for its speed or size; none without a gain,
    and none slower than float, is."""
    is_worse = is_in_vain(verdict) or verdict.seems_slower or verdict.cost.is_larger
    if is_worse or not verdict.composition.uses_integers:
        return False
    if ORDER[verdict.grade] != ORDER[than.grade]:
        return ORDER[verdict.grade] < ORDER[than.grade]
    if than.cost.is_slower or than.cost.is_larger:
        return True
    return not than.composition.uses_integers or (is_not_faster(than) and not is_not_faster(verdict))


def fix_order(fix: Fix) -> tuple[object, ...]:
    """Return the sort key of fixes, the best first: grade, then predicted time, then SQNR."""
    return ORDER[fix.grade], fix.predicted, -(fix.sqnr or 0.0), fix.options


def in_place_of_poor(verdict: Verdict, recipe: Recipe, fixes: Sequence[Fix]) -> Fix | None:
    """Return the first fix that makes a poor model good at nearly its bytes, as far as the settings allow."""
    config = recipe.config
    is_asked = config.min_output_sqnr is not None or config.has_size or config.cost_model == "off"
    if verdict.grade != "poor" or is_asked:
        return None
    for fix in fixes:
        changed = {name for name, value in fix.settings.items() if getattr(config, name) != value}
        fits = changed & recipe.given <= {"mode"} and fix.bytes <= NEARLY * verdict.quantized_bytes
        if fix.grade == "good" and fits:
            return fix
    return None


def weights_fix(recipe: Recipe) -> Fix | None:
    """Return the fix that quantizes only weights, to 8 bits, as its command does; None if impossible."""
    config, settings = recipe.config, weight_only_settings(recipe)
    own = OF_BITS if config.weight_type in FEW_BITS and recipe.given.isdisjoint(OF_BITS) else {}
    if settings is None:
        return None
    return Fix({"mode": "weight-only", "weight_type": config.weight_type, **own, **settings})


def proposed_fixes(verdict: Verdict, recipe: Recipe) -> Iterator[Fix]:
    """Yield the settings that may make a better model, those that take long to try last."""
    config, weights = recipe.config, weights_fix(recipe)
    if config.has_size:  # the size decides all else
        return
    is_noisy = verdict.grade in ("fair", "poor") and verdict.sqnr is not None
    # A fix of a poor model is written without being asked for, so the clock proposes none.
    is_slow, worst = verdict.cost.is_slower and verdict.grade != "poor", verdict.worst
    proposals: Sequence[tuple[bool, Settings]]  # when each is due, in the order of trial
    of_weights: Settings = weights.settings if weights else {}
    if config.mode == "weight-only":
        is_few = config.weight_type in FEW_BITS
        is_rounded = is_noisy and is_few and not TYPES[config.weight_type].is_float
        may_be_int8 = is_slow and recipe.given.isdisjoint(OF_BITS) and goes_with(recipe, IN_INT8)
        proposals = (
            (is_rounded and not 0 < config.block_size <= SMALL_BLOCK, {"block_size": SMALL_BLOCK}),
            (is_few and (is_noisy or is_slow), of_weights),
            (may_be_int8, IN_INT8),
            (is_rounded and config.rounding != "gptq", {"rounding": "gptq"}),
        )
    else:
        has_int8, planned = verdict.composition.uses_integers, config.reads_profile
        usual = load_recipe(config.target if config.target in target_names() else None).config
        names = [n for n in ("calibrator", "schema") if getattr(config, n) != getattr(usual, n)]
        own: Settings = {n: getattr(usual, n) for n in names if planned}
        is_near = verdict.grade == "fair" and has_int8 and planned and config.min_output_sqnr is None
        needed = worst.needed if is_near and worst is not None and worst.excess > 1.0 else None
        sqnr: Settings = {} if needed is None else {"min_output_sqnr": math.ceil(needed) + 1.0}
        proposals = (
            ((is_noisy and has_int8) or is_not_faster(verdict), own),
            (True, sqnr),  # with a margin, as other samples are noisier
            (is_slow and not config.regards_time, {"cost_model": "auto"}),
            (is_noisy or is_slow or not has_int8 or verdict.cost.is_larger, of_weights),
        )
    yield from (Fix(settings) for is_due, settings in proposals if is_due and settings)

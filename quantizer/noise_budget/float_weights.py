"""Float nodes that may have int8 weights: the noise of rounding these is held to what an output can bear.
Pure.

A weight that is dequantized when the model is loaded makes the file smaller, and saves no time. So its noise
may only use what the quantized nodes left of the noise budget, and no more of that than goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt

from ..plan.plan import Kind, QuantPlan

Floats = npt.NDArray[np.float64]

UNNOTICED_DB = 30.0
"""Variance of an output over the noise of all weights that are rounded without saving time."""

TOO_GOOD_DB = 15.0
"""By how much the estimate for a product may be too good. The error of a weight is the same at each place and
in each sample: means do not take it away as they do the rounding of activations. In a text recogniser the
weights of depthwise convolutions were estimated 12.4 dB below the noise of the quantized nodes, and measured
to equal it (tuning split). Recurrent cells are run with such errors; what is estimated of them is near."""

Store = Callable[[Collection[str]], QuantPlan]
"""Returns the plan in which all float nodes have int8 weights that can, but for the nodes given."""


def plan_with_int8_weights(
    plan: QuantPlan,
    store: Store,
    noise_of: Callable[[QuantPlan], Mapping[str, Floats]],
    *,
    trusted: Collection[str],
    varying: Floats,
    allowed: Floats,
) -> QuantPlan:
    """Return a plan in which float nodes have int8 weights as far as the noise budget allows.

    Args:
        plan: within the budget; its float nodes have float weights.
        store: makes the plan with int8 weights.
        noise_of: returns what each node of a plan adds to the noise over the signal at every output.
        trusted: nodes whose noise was measured, or simulated (`recurrence`), and not only calculated.
        varying: variance over power of each output.
        allowed: most noise over signal at each output.
    """
    float_weights: set[str] = set()
    trial = store(float_weights)
    noise = noise_of(trial)
    stored = _stored(plan, trial)
    none = np.zeros(len(varying))
    quantized = sum((share for name, share in noise.items() if name not in stored), none)
    limits = np.maximum(np.minimum(10.0 ** (-UNNOTICED_DB / 10.0) * varying, allowed - quantized), 0.0)
    margins = {name: 1.0 if name in trusted else 10.0 ** (TOO_GOOD_DB / 10.0) for name in stored}
    while stored:
        unknown = stored - noise.keys()
        # Nodes of subgraphs, and what leads to no output that is judged: nobody knows what their noise does.
        found = unknown or _noisiest({name: margins[name] * noise[name] for name in sorted(stored)}, limits)
        if not found:
            break
        float_weights |= found
        trial = store(float_weights)
        stored = _stored(plan, trial)
    return trial


def _stored(plan: QuantPlan, trial: QuantPlan) -> set[str]:
    """Return the nodes whose weights are float in one plan and int8 in another."""
    return {
        name
        for name, entry in trial.nodes.items()
        if entry.kind is Kind.WEIGHT_ONLY and plan.nodes[name].kind is Kind.FLOAT
    }


def _noisiest(noise: Mapping[str, Floats], limits: Floats) -> set[str]:
    """Return the fewest nodes without which the output that is farthest above its limit is within it."""
    total = sum(noise.values(), np.zeros(len(limits)))
    above = np.divide(total, limits, out=np.where(total > 0.0, np.inf, 0.0), where=limits > 0.0)
    if not above.size or above.max() <= 1.0:
        return set()
    worst = int(np.argmax(above))
    found: set[str] = set()
    rest = float(total[worst])
    for name in sorted(noise, key=lambda name: -noise[name][worst]):
        if rest <= limits[worst]:
            break
        found.add(name)
        rest -= float(noise[name][worst])
    return found

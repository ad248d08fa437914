"""How good a quantized model is, why, and what to try: from what was measured and the plan. Pure.

Enters: an evaluation on samples that were held out, the plan, the noise that single nodes add.
Leaves: `Verdict`, with fixes and what each of them brings.
Imports: evaluation, noise, outputs, targets, metrics, differences, runtime, profiles.base.
"""

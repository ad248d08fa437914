"""From a model and samples to a quantized model with its verdict: profile, plan, write, evaluate, fix.

Enters: paths, samples, settings.
Leaves: `QuantizeResult` with a verdict; the profile beside the model.
Imports: verdict.
"""

"""From a model and samples to a quantized model with its verdict: profile, plan, write, evaluate, fix.

Enters: paths, samples, settings.
Leaves: `QuantizeResult` with a verdict; the profile beside the model.
Imports: pipeline, tuning, scoring, verdict, evaluation, speed, lowering, planning, noise, outputs, plan,
ranges, prepare, targets, metrics, differences, runtime, model, profiles.runner, profiles.runtime,
profiles.samples, profiles.readers, profiles.records, profiles.base.
"""

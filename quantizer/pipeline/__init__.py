"""The public functions and the order of the steps: dump_profile, quantize, instrument, explain, diff.

Enters: paths, settings.
Leaves: files and results.
Imports: verdict, evaluation, speed, exchange, lowering, planning, equalization, noise, rounding, plan,
ranges, noise_runs, prepare, targets, runtime, model, numerics, profiles.runner, profiles.instrumentation,
profiles.runtime, profiles.samples, profiles.readers, profiles.records, profiles.base.
"""

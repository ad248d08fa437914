"""Measured sensitivity, and the search for a plan that keeps a quality target.

Enters: prepared model, profile, samples, labels.
Leaves: `Sensitivities`, `TuneResult`.
Imports: evaluation, lowering, planning, plan, ranges, prepare, targets, operators, runtime, model,
profiles.samples, profiles.records, profiles.base.
"""

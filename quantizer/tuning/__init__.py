"""Measured sensitivity of nodes, and the search for a plan that meets a quality target.

Enters: prepared model, profile, samples, labels.
Leaves: `Sensitivities`, `TuneResult`.
Imports: evaluation, speed, lowering, planning, noise, plan, ranges, prepare, targets, operators, runtime,
model, profiles.instrumentation, profiles.samples, profiles.records, profiles.base.
"""

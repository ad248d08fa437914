"""Measured sensitivity of nodes, and the search for a plan that meets a quality target.

Enters: prepared model, profile, samples, labels.
Leaves: `Sensitivities`, `TuneResult`.
<<<<<<< HEAD
Imports: scoring, speed, exchange, lowering, planning, costs, noise, plan, ranges, prepare, targets,
operators, metrics, differences, runtime, model, profiles.runner, profiles.instrumentation,
profiles.runtime, profiles.samples, profiles.readers, profiles.records, profiles.base.
"""

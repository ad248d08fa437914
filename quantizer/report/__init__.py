"""A report of a quantized model: what is estimated of its plan, what was measured, and what to do next.

Enters: an `Analysis` of model, plan and profile; results of commands.
Leaves: a `Report`, which `html` and `writers` make files of.
Imports: pipeline, tuning, scoring, verdict, evaluation, speed, exchange, planning, costs, equalization,
noise, outputs, plan, ranges, prepare, targets, operators, metrics, differences, model, numerics,
profiles.records, profiles.noise, profiles.base.
"""

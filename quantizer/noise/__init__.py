"""Expected quantization noise at the outputs, without data.

Enters: graph, profile, plan.
Leaves: nodes that stay float, with the figures.
Imports: plan, ranges, operators, model, numerics, profiles.records.
"""

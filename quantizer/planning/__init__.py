"""Planning: from graph, profile and recipe to a plan. Knows nothing of how it is written.

Enters: `PreparedModel`, `Profile`, `Recipe`.
Leaves: `QuantPlan` and the model that it is for.
Imports: noise_budget, costs, equalization, low_bits, noise, rounding, outputs, plan, ranges, prepare,
targets, operators, model, numerics, profiles.readers, profiles.records, profiles.base.
"""

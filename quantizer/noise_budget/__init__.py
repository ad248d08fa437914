"""Which nodes stay float, or have int8 weights, so that outputs are within their noise limits. Pure.

Enters: a maker of plans, ranges, noise limits, prices.
Leaves: the plan within its noise budget.
Imports: costs, noise, outputs, plan, ranges, operators, model, numerics, profiles.records, profiles.noise.
"""

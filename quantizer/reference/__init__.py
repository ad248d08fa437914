"""Oracles in plain numpy, for tests: what a plan means, what Glow computes. Never imported by the product.

Enters: plan, model, feeds.
Leaves: expected tensors.
Imports: lowering, plan, ranges, operators, model, numerics, profiles.base.
"""

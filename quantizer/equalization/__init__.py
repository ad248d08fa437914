"""Data-free adjustments (Nagel et al. 2019): cross-layer equalization and bias correction.

Enters: model, profile, first plan.
Leaves: equalization scales, biases; the adjusted model and profile.
Imports: plan, ranges, targets, operators, model, numerics, profiles.instrumentation, profiles.records,
profiles.base.
"""

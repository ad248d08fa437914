"""Low bits: weights of float nodes in 4 or 8 bits, and what the target has to compute with them.

Enters: a constant, its node, target and settings.
Leaves: parameters of the constant, and how the node is written.
Imports: plan, targets, operators, model, numerics.
"""

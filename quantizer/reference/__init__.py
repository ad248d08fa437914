"""Reference implementations in numpy, for tests only: what a plan means, what Glow computes.

Only tests import this room.

Enters: plan, model, samples.
Leaves: expected tensors.
"""

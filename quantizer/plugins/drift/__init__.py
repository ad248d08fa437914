"""Drift: new data against the parameters that an older profile led to.

Enters: two profiles.
Leaves: a `DriftReport`.
"""

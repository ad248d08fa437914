"""Which tensors are observed, and a graph with these tensors as outputs.

Enters: a prepared model.
Leaves: a model with more outputs, and `Observation`s.
"""

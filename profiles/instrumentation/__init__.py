"""Which tensors are observed, and how a graph is made to show them.

Enters: a prepared model.
Leaves: a model with more outputs, and `Tap`s.
Imports: runtime, records, base.
"""

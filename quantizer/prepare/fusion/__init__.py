"""Passes that fuse several nodes into one.

Enters: a model.
Leaves: how much was changed.
Imports: model.
"""

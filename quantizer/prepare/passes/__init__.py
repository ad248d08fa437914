"""Normalisation passes that keep every operator what it is.

Enters: a model.
Leaves: how much was changed.
Imports: model.
"""

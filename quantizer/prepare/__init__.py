"""The one normalisation that a model passes before it is profiled, planned or lowered.

Enters: a model file.
Leaves: `PreparedModel`; a profile bound to it.
"""

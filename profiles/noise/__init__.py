"""Records of how noise travels through a model, measured on a few samples; their text in profile files.

Enters: mean squares.
Leaves: `SampleNoise`.
Imports: base.
"""

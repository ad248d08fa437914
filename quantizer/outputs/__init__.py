"""What the outputs of a model are, and how much quantization noise they and the steps inside can bear. Pure.

Enters: graph, profile, settings.
Leaves: the kind of each output, and the most noise at each tensor where noise is judged.
Imports: targets, operators, model, numerics, profiles.records, profiles.base.
"""

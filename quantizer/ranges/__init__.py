"""Range setting: which range of each activation its quantized values should cover.

Enters: `Profile`, graph, recipe.
Leaves: a `Range` for each activation.
Imports: targets, operators, model, numerics, profiles.records, profiles.base.
"""

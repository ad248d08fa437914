"""The outputs of two models on the same samples: how far apart they are, and whether their answers agree.

Enters: arrays of the float and of the quantized model.
Leaves: `OutputResult`, `Difference`, `ClassAxis`.
Imports: numerics, profiles.base.
"""

"""What a profile says about the samples it was made of: extremes with their samples, inputs, hints, outliers.

Enters: records of tensors, by their attributes.
Leaves: `Extremes`, `InputCheck`s, hints, samples that stand out.
Imports: base.
"""

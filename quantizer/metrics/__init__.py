"""What a model is worth: the table of metrics, the truth that each reads, and intervals of what is lost.

Enters: outputs of two models on samples, and a file or folder of truth.
Leaves: `Metric`, `Score`.
Imports: differences, profiles.samples, profiles.readers, profiles.base.
"""

"""What a quantized model is scored with: the samples, their float outputs, the metric, and the drop allowed.

Enters: float model's session, samples, labels; a quantized model, a plan.
Leaves: `ScoringSamples`, `Score`, `QualityTarget`; the value of an objective.
Imports: planning, costs, plan, ranges, operators, metrics, differences, runtime, model, profiles.runner,
profiles.runtime, profiles.samples, profiles.readers, profiles.records, profiles.base.
"""

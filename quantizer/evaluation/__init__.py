"""Float against quantized: SQNR, accuracy, agreement, size, latency, gates.

Enters: two model files and samples.
Leaves: `Evaluation`, `LayerReport`.
Imports: lowering, equalization, noise, plan, ranges, prepare, targets, operators, metrics, differences,
runtime, model, numerics, profiles.instrumentation, profiles.runtime, profiles.samples, profiles.readers,
profiles.records, profiles.base.
"""

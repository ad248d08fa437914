"""Float against quantized: SQNR, accuracy, agreement, size, latency, gates.

Enters: two model files and samples.
Leaves: `Evaluation`, `LayerReport`.
Imports: lowering, equalization, plan, prepare, operators, runtime, model, numerics, profiles.samples,
profiles.base.
"""

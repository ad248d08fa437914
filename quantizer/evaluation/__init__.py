"""Float against quantized: SQNR, accuracy, agreement, size, latency, gates.

Enters: two model files and samples.
Leaves: `Evaluation`.
"""

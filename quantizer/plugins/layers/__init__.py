"""Float against quantized, tensor by tensor: what `compare-layers` prints.

Enters: two models, and samples.
Leaves: `LayerReport`.
"""

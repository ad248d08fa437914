"""The output of `compare-layers`: float against quantized, tensor by tensor.

Enters: two models, and samples.
Leaves: `LayerReport`.
"""

"""Quantization arithmetic: scale, zero point, rounding, expected noise. No graph.

Enters: ranges, histograms, arrays.
Leaves: `QuantParams`, quantized values, noise figures.
"""

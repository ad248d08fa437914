"""One module for each format of scales and zero points that other tools choose.

Enters: files of AIMET, QNN and onnxruntime; plans.
Leaves: `ForeignParams`; files for these tools.
Imports: exchange, plan, numerics, profiles.base.
"""

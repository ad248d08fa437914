"""A model file read: its facts checked, mended where onnxruntime takes what the standard does not, converted.

Enters: an ONNX file.
Leaves: `LoadedModel`.
"""

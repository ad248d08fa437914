"""onnxruntime as the profiler uses it.

Enters: an ONNX model.
Leaves: sessions that give intermediate tensors.
"""

"""The parameters that stand in quantized ONNX models, of any tool."""

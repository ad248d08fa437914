"""One module for each notation in which compilers write quantized types: a plan without ONNX in the loop."""

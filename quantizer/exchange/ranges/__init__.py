"""One module for each format of ranges that other tools record: onnxruntime, TensorRT, Glow."""

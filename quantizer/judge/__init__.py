"""Float against quantized: quality of each output and tensor, accuracy, size, latency, and gates."""

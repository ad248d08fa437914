"""What is decided and written: ranges, scales, plans, quantized models; how good and how fast they are."""

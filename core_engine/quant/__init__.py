"""Weight quantization: the form of a quantized matrix, quantizers that make it, and checkpoints that hold it."""

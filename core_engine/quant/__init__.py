"""Weight quantization: the form of a quantized matrix, quantizers that make it, and checkpoints that hold it."""

__all__ = [
    "awq",
    "cache",
    "calibrate",
    "checkpoints",
    "describe",
    "gguf_blocks",
    "gptq",
    "linear",
    "matrix",
    "quantize",
    "rtn",
    "scheme",
    "write",
]

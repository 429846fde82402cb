"""The decoder, its configuration, and how weights and tokenizer come from disk."""

__all__ = [
    "compiled",
    "decoder",
    "device_weights",
    "embedded",
    "enlarged",
    "loader",
    "quantized_checkpoint",
    "rope",
    "sources",
    "spec",
    "tokenizer",
    "triton_decoder",
    "weights",
]

"""KV formats: what a block of quantized keys and values is, byte by byte, and attention over such blocks."""

__all__ = ["attention", "block", "cache", "format"]

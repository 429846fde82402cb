"""Speculative decoding measured: every form of draft on the same prompts, beside plain decoding and the model."""

__all__ = ["constructed", "expected", "parts", "run", "spec", "tasks"]

"""Speculative decoding measured: every form of draft on the same prompts, beside plain decoding and the model."""

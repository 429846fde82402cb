"""Speculative decoding: who proposes tokens (proposers) and how the target accepts them (verify)."""

"""Speculative decoding: who proposes tokens (proposers) and how the target accepts them (verify)."""

__all__ = ["artefact", "load_draft", "make", "proposer", "speculation", "statistics", "training", "verify"]

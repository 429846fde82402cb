"""Training of drafts: the text, the networks as autograd sees them, the loop, and what a trained draft is worth."""

__all__ = ["acceptance", "corpus", "networks", "target", "train"]

"""Answer caches measured: what they find, and what they find wrongly."""

__all__ = ["evaluation", "pairs", "run", "spec"]

"""Profiles of single steps: which operators there are, launches and time of each, and what one variable changes."""

__all__ = ["run", "spec"]

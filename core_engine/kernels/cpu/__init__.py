"""The decoder's step in C++ for processors: sources, and the library built from them once a machine."""

__all__ = ["native", "packing", "sampling"]

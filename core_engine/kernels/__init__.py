"""Computation that an executor may swap: the torch reference is the oracle for every other implementation."""

__all__ = ["choice", "cpu", "linear", "options", "reference", "triton"]

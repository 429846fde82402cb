"""Sweeps: one workload at many loads, both knees, the limits that follow, and points on several machines."""

__all__ = ["growth", "measure", "plan", "points", "run", "spec", "words"]

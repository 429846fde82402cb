"""Sweeps: one workload at many loads, both knees, the limits that follow, and points on several machines."""

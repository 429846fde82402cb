"""Kernels for CUDA devices, in Triton: what kernels/cpu is for a CPU.

Only modules in here import triton, and whoever needs one of them imports it late: everything else runs without triton
and without a GPU. Each kernel is tested in Triton's interpreter against torch, and compiled for every architecture.
"""

__all__ = ["attention", "available", "kv_write", "pointwise", "rows", "sampling", "w4a16", "w8a8"]

"""Executors turn a StepPlan into a StepResult."""

__all__ = [
    "activation_meter",
    "base",
    "batch",
    "choices",
    "device_batch",
    "device_choices",
    "flat_batch",
    "largest_steps",
    "make",
    "roofline_executor",
    "sampler",
    "storage",
    "torch_executor",
]

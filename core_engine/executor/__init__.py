"""Executors turn a StepPlan into a StepResult."""

"""The answer keys: functions by name that a lab's figures are computed with. See docs/labs.md for the list."""

from experiments.labs.keys.arithmetic import ARITHMETIC
from experiments.labs.keys.formulas import FORMULAS
from experiments.labs.keys.of_run import check_path, look_up

__all__ = ["ARITHMETIC", "FORMULAS", "check_path", "look_up"]

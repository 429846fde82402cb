"""The registry of every variable a user can change: one entry each, read by the engine, the command line and the page.

Owns names, types, choices, defaults and what each variable is expected to move. Knows nothing of how a mechanism works.
Adding an optimisation means writing the mechanism and one entry in the module of its group: docs/extending.md has a
complete example.
"""

from core_engine.variables.entry import Value, Variable
from core_engine.variables.memory import KV_DTYPES
from core_engine.variables.model import MADE_HERE, QUANTIZED, W4A16
from core_engine.variables.registry import VARIABLES, parse_setting, parse_value, variable
from core_engine.variables.speculation import LOOK_UPS, TRAINED_DRAFTS

__all__ = [
    "KV_DTYPES",
    "LOOK_UPS",
    "MADE_HERE",
    "QUANTIZED",
    "TRAINED_DRAFTS",
    "VARIABLES",
    "W4A16",
    "Value",
    "Variable",
    "parse_setting",
    "parse_value",
    "variable",
]

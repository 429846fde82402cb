"""A small model answers first; what it is unsure of goes to the large one."""

from core_engine.routing.engine import RoutedEngine
from core_engine.routing.rule import PROBE_TOKENS, Escalation
from core_engine.routing.small import same_tokenizer, small_config

__all__ = ["PROBE_TOKENS", "Escalation", "RoutedEngine", "same_tokenizer", "small_config"]

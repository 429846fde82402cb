"""The playbook: a roll-out ladder climbed step by step on somebody's own workload and objectives.

Owns the steps and recipes as data (steps.py, recipes.py), one step's comparison and quality guard (trial.py, guard.py),
the rule that adopts it (decide.py), return by effort (roi.py), the order of it all (run.py) and its words in two
languages. Measuring, statistics and quality scores are others'.
"""

__all__ = ["decide", "outcomes", "recipes", "roi", "run", "spec", "steps", "words"]

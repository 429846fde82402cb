"""Cluster planning: which cards, split how, in which formats, serve a traffic under objectives for the least money.

spec.py says what is asked, candidates.py what could be built, ledger_stage.py what cannot be and how good the rest
looks by arithmetic, evaluate.py simulates a replica, search.py halves the survivors, plans.py prices and words what is
left, binding.py says what holds it back, launch_lines.py how engines start it.
Everything here is simulated or computed; nothing runs on this machine but the simulator.
"""

__all__ = ["candidates", "run", "search", "spec", "traffic"]

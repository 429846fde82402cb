"""The simulator: fitted to the engine here, or taken from device profiles, and run on traffic.

design.py says which steps are measured, fit.py turns them into efficiencies, calibration.py measures and keeps them;
deployment.py builds replicas for a spec, run.py serves the traffic and gives metrics labelled simulated.
"""

__all__ = ["calibration", "deployment", "metrics", "public", "run"]

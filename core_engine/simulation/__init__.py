"""Serving simulated: the engine's own scheduler, pool and prefix cache over executors that only move a virtual clock.

replica.py is one engine without text, fast enough for millions of requests; fleet.py many of them behind a router.
"""

__all__ = ["fleet", "gaps", "job", "model", "replica", "routers"]

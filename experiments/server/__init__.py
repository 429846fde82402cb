"""The engine as an OpenAI-compatible server: `trilemma serve`.

protocol.py reads requests, replies.py words answers, engine_thread.py owns the engines, service.py brings the three
together, app.py is the HTTP side, canary.py splits traffic and rolls back, metrics.py counts, run.py starts and stops.
Only app.py and run.py know a web framework; nothing of it is loaded before the verb runs.
"""

__all__ = ["access", "canary", "run"]

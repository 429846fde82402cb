"""Prefill and decode in processes of their own: a request's KV is handed from one to the other.

area.py      the shared memory that KV blocks cross, fenced by a sequence number and a checksum each
leases.py    which part of it belongs to which transfer
messages.py  what driver and sides say to each other; wire.py carries it
worker.py    the process of a side: an engine, and the copying in and out
side.py      a side as the driver sees it: started, watched, started again
books.py     who holds which blocks of both pools, from the steps that the sides report
router.py    where each request is, and when it may go on
engine.py    DisaggregatedEngine, which looks like an Engine from outside
"""

__all__ = ["engine", "sides"]

"""What the pages need is imported before somebody waits for it, in a thread of the page's server.

First what the first page is drawn with, while the browser loads its own part. Charts, tables and reports take longer
and wait until that page is drawn, since Python runs one thread at a time and the browser would wait for them.
"""

from __future__ import annotations

import gc
import time
from importlib import import_module
from threading import Event, Thread

FIRST = (
    "app.components.hardware", "app.components.kernels", "app.components.money", "app.navigation",
    "app.views.workbench",
)  # fmt: skip
OTHERS = ("app.charts", "pandas", "pyarrow.parquet", "experiments.report.formats", "app.components.results",
          "app.components.live", "app.components.export", "app.components.next_step", "app.views.runs",
          "app.views.trace", "app.views.ledger", "app.views.roofline")  # fmt: skip
NOBODY_CAME_S = 10.0
BROWSER_DRAWS_S = 2.0  # it still asks for the code of what it draws when the script has ended
_drawn = Event()


def load_in_background() -> Thread:
    """Begin; a page that is drawn meanwhile imports what it needs itself, and waits for a module that is under way."""
    thread = Thread(target=_load, name="load", daemon=True)
    thread.start()
    return thread


def page_is_drawn() -> None:
    """The first page is drawn: the rest may be loaded."""
    _drawn.set()


def _load() -> None:
    for name in FIRST:
        import_module(name)
    if _drawn.wait(NOBODY_CAME_S):
        time.sleep(BROWSER_DRAWS_S)
    for name in OTHERS:
        import_module(name)
    # What is imported stays until the end: no collection looks through it again.
    gc.collect()
    gc.freeze()

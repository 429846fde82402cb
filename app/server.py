"""The page's server: `python -m app.server --host HOST --port N`, started by `trilemma ui`.

Makes way for the engine, then runs streamlit behind the gate. The token that it asks for, if any, is in the environment
and taken out of it at once: no process that is started from here inherits it.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

from experiments.server.access import LOOPBACK, PAGE_TOKEN_ENV, is_loopback
from experiments.yielding import make_way
from ledger.errors import InputError

MOST_UPLOAD_MB = 200
END_GRACE_S = 5.0
SWITCH_S = 0.0005  # the thread that answers browsers waits so long for one that computes, a tenth of the usual
YOUNG_OBJECTS = 50_000  # before a collection; reading the events of a long run makes hundreds of thousands
PAGE = Path(__file__).with_name("main.py")


def main() -> None:
    """Run until ended; priority is lowered first, so that every thread of the server begins with it."""
    parser = argparse.ArgumentParser(prog="app.server", description="The page's server; `trilemma ui` starts it.")
    parser.add_argument("--host", default=LOOPBACK[0])
    parser.add_argument("--port", type=int, default=8501)
    parser.add_argument("--end-with-stdin", action="store_true", help="End when standard input does.")
    options = parser.parse_args()
    if options.end_with_stdin:
        Thread(target=end_with_stdin, name="parent", daemon=True).start()
    token = os.environ.pop(PAGE_TOKEN_ENV, None)
    if token is None and not is_loopback(options.host):
        error = InputError("--host", options.host, f"{', '.join(LOOPBACK)}, or another one together with a token")
        print(error, file=sys.stderr)
        sys.exit(2)
    make_way()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    sys.setswitchinterval(SWITCH_S)
    import streamlit as st
    from starlette.middleware import Middleware

    from app.gate import Gate
    from app.loading import load_in_background
    from app.visitor_cookie import Visitors

    load_in_background()
    hosts = () if token is not None else (*LOOPBACK, options.host)
    page = st.App(PAGE, middleware=[Middleware(Gate, token=token, hosts=hosts), Middleware(Visitors)])
    page.run(
        config={
            "server.address": options.host,
            "server.port": options.port,
            "server.headless": True,
            "server.maxUploadSize": MOST_UPLOAD_MB,
            "server.enableXsrfProtection": True,
            "server.enableStaticServing": False,
            "server.fileWatcherType": "none",  # it looks for changes of our code, through all modules after each draw
            "browser.gatherUsageStats": False,
            "logger.hideWelcomeMessage": True,  # it asks another server for the address of this one
            "runner.magicEnabled": False,
            "runner.postScriptGC": False,  # it would keep the end of every draw from the browser meanwhile
        }
    )


def end_with_stdin() -> None:
    """End this process when whoever holds the other end of its standard input has ended, however that was.

    As SIGTERM does; at once where that does not help within END_GRACE_S.
    """
    with suppress(OSError):
        while os.read(0, 1):  # no lock of a buffer is held when the interpreter ends first
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_GRACE_S)
    os._exit(0)


if __name__ == "__main__":
    main()

"""The page's server ends with the command line that started it, also when that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_ends_when_whoever_started_it_is_gone() -> None:
    served = "import threading, time\nfrom app.server import end_with_stdin\n"
    served += "threading.Thread(target=end_with_stdin, daemon=True).start()\nprint('up', flush=True)\ntime.sleep(60)\n"
    with subprocess.Popen(
        [sys.executable, "-c", served], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        assert server.stdout.readline() == b"up\n" and server.poll() is None
        server.stdin.close()  # as the system does for a process that is killed
        assert server.wait(10) in (-signal.SIGTERM, 0)

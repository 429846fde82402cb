"""The command line: `trilemma VERB`. One module a verb; this one runs them and maps errors to exit codes.

0 done; 2 the input is wrong; 3 it cannot run here; 1 a fault of ours (with a log); 130 cancelled by Ctrl-C, from the
first moment on: nothing is imported here before that can be said.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["ladder", "tables"]


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code. Never raises for what a user can cause."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        from experiments.cli.output import CANCELLED

        return CANCELLED


def _run(argv: Sequence[str]) -> int:
    import typer

    from experiments.cli.output import CANCELLED, DONE, exit_code
    from experiments.cli.verbs import VERBS, command_line

    try:
        app = command_line(argv[:1] if argv and argv[0] in VERBS else VERBS)
        code = app(args=list(argv), prog_name="trilemma", standalone_mode=False)
    except typer.Abort:
        return CANCELLED
    except BrokenPipeError:
        # The reader has gone (`trilemma runs | head`): nothing more to say, and nothing at interpreter exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return exit_code(error)
    return code if isinstance(code, int) else DONE


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The `trilemma` console script. Commands that compute in this process wait as a worker does."""
    from experiments.threads import spin_shortly

    spin_shortly()
    sys.exit(run(sys.argv[1:] if argv is None else argv))

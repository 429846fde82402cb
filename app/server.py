"""The page's server: `python -m app.server [OPTION]...` makes way for the engine, then runs streamlit."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.yielding import make_way


def main() -> None:
    """Run until ended; priority is lowered first, so that every thread of the server begins with it."""
    make_way()
    from streamlit.web import cli

    sys.argv = ["streamlit", "run", str(Path(__file__).with_name("main.py")), *sys.argv[1:]]
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()

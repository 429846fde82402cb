"""Where the command line's words go: results to stdout, everything else to stderr. Exit codes are made here."""

from __future__ import annotations

import json
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.whole_file import check_place, write_whole
from ledger.errors import OUT_OF_MEMORY, CannotRunError, InputError, is_out_of_memory

DONE, FAULT, WRONG_INPUT, CANNOT_RUN, CANCELLED = 0, 1, 2, 3, 130  # 130 is the shell's own code for Ctrl-C


class Failed(Exception):
    """A verb ends with a line and an exit code that are already known, as those of a job in another process are."""

    def __init__(self, line: str, code: int) -> None:
        super().__init__(line)
        self.code = code


def print_json(value: dict[str, Any]) -> None:
    """Write one JSON object to stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    sys.stdout.flush()


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write one JSON object to a file; errors as `write_file`."""
    write_file(path, json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())


def write_file(path: Path, body: bytes) -> None:
    """Write a file whole; InputError for a path that can't be written, CannotRunError when the disk is full.

    What was there stays when it can't be finished.
    """
    check_writable(path)
    try:
        write_whole(path, body)
    except OSError as error:
        raise CannotRunError(f"{path} can't be written: {error.strerror or error}") from None


def check_writable(path: Path) -> None:
    """InputError when a file can't be written at `path`, before an hour of measuring goes into it."""
    try:
        check_place(path)
    except OSError as error:
        raise InputError("file", str(path), f"a path that can be written ({error.strerror})") from None


def note(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def exit_code(error: BaseException) -> int:
    """Tell the user about an error in one line and return the exit code that goes with it."""
    if isinstance(error, InputError | CannotRunError | Failed):
        note(f"trilemma: {one_line(str(error))}")
        if isinstance(error, Failed):
            return error.code
        return WRONG_INPUT if isinstance(error, InputError) else CANNOT_RUN
    if is_out_of_memory(error):
        note(f"trilemma: {OUT_OF_MEMORY}")
        return CANNOT_RUN
    usage = _usage_message(error)
    if usage is not None:
        note(f"trilemma: {one_line(usage)} (trilemma VERB --help shows what is accepted)")
        return WRONG_INPUT
    note(f"trilemma: a fault of ours: {type(error).__name__}: {one_line(str(error))}; log: {_write_log(error)}")
    return FAULT


def one_line(text: str) -> str:
    """The text with its line breaks and runs of blanks as single blanks."""
    return " ".join(text.split())


def _usage_message(error: BaseException) -> str | None:
    """The message of a parser's usage error. Told by its shape: typer has its own copy of click's classes or not."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return str(error.format_message())
    return None


def _write_log(error: BaseException) -> str:
    from experiments.store import data_home

    path: Path = data_home() / "logs" / f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    text = "".join(traceback.format_exception(error))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as failure:
        return f"not written ({failure.strerror or failure}); {one_line(text)}"
    return str(path)

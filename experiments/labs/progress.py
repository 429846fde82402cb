"""What a learner has done in each lab: one small JSON file a lab, `labs/LEARNER/LAB.json` under the data home.

Owns the file: it is written beside and renamed, so that a reader or a power cut never meets half of it, and `alone`
keeps a page and a terminal from changing it at once. What the entries mean is session.py's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from experiments.store.store import data_home
from experiments.whole_file import write_whole
from ledger.errors import CannotRunError, InputError

VERSION = 1
DEFAULT_LEARNER = "me"
_NAME = re.compile(r"[\w.\-]{1,40}")

State = dict[str, Any]


def empty() -> State:
    """A lab that was not begun."""
    return {"version": VERSION, "edition": None, "prediction": None, "run_id": None, "figures": None, "answers": {}}


class Progress:
    """The files of one learner; `home` defaults to the data home. InputError for a name that can't be a folder's."""

    def __init__(self, learner: str = DEFAULT_LEARNER, home: Path | None = None) -> None:
        if not _NAME.fullmatch(learner) or not learner.strip("."):
            raise InputError("--learner", learner[:60], "up to 40 letters, digits, '-', '_' or '.'")
        self.learner = learner
        self._folder = (home or data_home()) / "labs" / learner

    def path(self, lab_id: str) -> Path:
        """The file of a lab."""
        return self._folder / f"{lab_id}.json"

    @contextmanager
    def alone(self, lab_id: str) -> Iterator[None]:
        """Until it is left, whoever else wants to change the lab waits. Not to be entered twice."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = (self._folder / f".{lab_id}.lock").open("w")
        except OSError as error:
            raise CannotRunError(f"the progress of lab {lab_id} can't be kept: {error.strerror or error}") from None
        with file:
            with suppress(ImportError):  # a system without flock
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def load(self, lab_id: str) -> State:
        """What was kept of a lab. CannotRunError, with the way out, when the file is no longer what was written."""
        path = self.path(lab_id)
        try:
            found = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return empty()
        except (OSError, ValueError) as error:
            raise CannotRunError(self._damaged(lab_id, str(error))) from None
        if not _is_state(found):
            raise CannotRunError(self._damaged(lab_id, "not of this version"))
        return found

    def save(self, lab_id: str, state: State) -> None:
        """Keep it. CannotRunError when the disk takes nothing; what was there before stays."""
        path = self.path(lab_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(state, ensure_ascii=False, indent=1).encode(), lasting=True)
        except OSError as error:
            raise CannotRunError(f"the progress of lab {lab_id} can't be kept: {error.strerror or error}") from None

    def reset(self, lab_id: str) -> None:
        """Forget a lab; its run stays in the store."""
        try:
            self.path(lab_id).unlink(missing_ok=True)
        except OSError as error:
            raise CannotRunError(f"the progress of lab {lab_id} can't be removed: {error.strerror}") from None

    def _damaged(self, lab_id: str, why: str) -> str:
        return f"{self.path(lab_id)} can't be read ({why[:80]}); trilemma lab reset {lab_id} begins the lab anew"


def _is_state(found: Any) -> bool:
    if not isinstance(found, dict) or found.get("version") != VERSION or found.keys() != empty().keys():
        return False
    parts = [found[name] for name in ("prediction", "figures")]
    return isinstance(found["answers"], dict) and all(part is None or isinstance(part, dict) for part in parts)

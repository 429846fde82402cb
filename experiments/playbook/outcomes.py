"""The words by which a ladder's results say what became of a step and of its quality."""

from __future__ import annotations

ADOPTED, ROLLED_BACK, NOT_DECIDED = "adopted", "rolled back", "undecided"
THERE, CANT_RUN = "already there", "can't run here"
# Of the quality guard.
KEPT, LOST, UNDECIDED = "kept", "lost", "undecided"

"""What a quantizer knows of a product's inputs: sums over calibration tokens, never the inputs themselves.

Owns the calibration text, how it is cut into sequences, and the sums. Knows no quantizer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from ledger.errors import InputError

TEXT_FILE = Path(__file__).with_name("calibration.txt")
SEQUENCE = 512
MOST_SEQUENCES = 16
# Inputs of one product that are multiplied at a time: what is held beside the sums.
ROWS = 2048


@dataclass(frozen=True)
class CalibrationText:
    """A text and where it is from; its digest tells results of one text from those of another."""

    text: str
    name: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_text(path: Path | None = None) -> CalibrationText:
    """The user's text, or our own; InputError when it can't be read as UTF-8 or is empty."""
    source = path or TEXT_FILE
    try:
        text = source.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError("calibration", str(source), f"a readable text file in UTF-8 ({reason})") from None
    if not text.strip():
        raise InputError("calibration", str(source), "a text file that is not empty")
    return CalibrationText(text, TEXT_FILE.name if path is None else str(path))


def sequences(ids: list[int], max_position: int) -> torch.Tensor:
    """At most MOST_SEQUENCES sequences [count, length] of token ids, taken evenly from all of the text.

    InputError for a text of fewer tokens than one sequence has.
    """
    length = min(SEQUENCE, max_position)
    whole = len(ids) // length
    if whole < 1:
        raise InputError("calibration", f"a text of {len(ids)} tokens", f"at least {length} tokens")
    count = min(whole, MOST_SEQUENCES)
    chosen = [place * whole // count for place in range(count)]
    return torch.tensor([ids[place * length : (place + 1) * length] for place in chosen])


@dataclass
class InputSums:
    """Sums over the inputs x [depth] of a product: X^T X [depth, depth] in float32, the mean and the largest |x|."""

    hessian: torch.Tensor
    mean_abs: torch.Tensor
    max_abs: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor) -> InputSums:
        """Of x [num_tokens, depth], ROWS tokens at a time."""
        hessian = torch.zeros(x.shape[1], x.shape[1])
        for part in x.float().split(ROWS):
            hessian.addmm_(part.t(), part)
        absolute = x.float().abs()
        return cls(hessian, absolute.mean(0), absolute.amax(0))

    def divided(self, scales: torch.Tensor) -> InputSums:
        """Of inputs divided by scales [depth]."""
        return InputSums(self.hessian / torch.outer(scales, scales), self.mean_abs / scales, self.max_abs / scales)

"""Incremental detokenization: stable deltas, safe for multi-byte characters, with stop strings that span tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "�"


class TextStream:
    """Text of one request. Emitted deltas never change, and joined they equal decode(all ids) up to the stop.

    Decoding starts some tokens back (`_prefix`), since a tokenizer may write a first token differently.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: tuple[str, ...]) -> None:
        self._decode = decode
        self._stop = stop
        self._ids: list[int] = []
        self._prefix = 0  # first token of the decoding window
        self._read = 0  # tokens whose text is final
        self._text = ""
        self._sent = 0
        self.stopped = False

    @property
    def text(self) -> str:
        """The final text so far, the stop string excluded."""
        return self._text

    def push(self, token_id: int) -> None:
        """Take a token; sets `stopped` when a stop string is complete."""
        self._ids.append(token_id)
        window = self._decode(self._ids[self._prefix :])
        if window.endswith(REPLACEMENT):  # perhaps half a character: wait for the rest
            return
        self._accept(window)

    def _accept(self, window: str) -> None:
        done = self._decode(self._ids[self._prefix : self._read])
        search_from = max(0, len(self._text) - max((len(s) for s in self._stop), default=1) + 1)
        self._text += window[len(done) :]
        self._prefix, self._read = self._read, len(self._ids)
        found = [at for at in (self._text.find(s, search_from) for s in self._stop) if at >= 0]
        if found:
            self._text = self._text[: min(found)]
            self.stopped = True

    def take(self, *, final: bool) -> str:
        """The new text that is safe to send. Not final: the beginning of a possible stop string is held back."""
        if final and not self.stopped and self._read < len(self._ids):
            self._accept(self._decode(self._ids[self._prefix :]))  # an unfinished character, as decode shows it
        end = len(self._text) if final or self.stopped else len(self._text) - self._held_back()
        delta = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return delta

    def _held_back(self) -> int:
        longest = 0
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(self._text)), longest, -1):
                if self._text.endswith(stop[:size]):
                    longest = size
                    break
        return longest

"""Incremental text of one request: stable deltas, safe for multi-byte characters, with stop texts that span tokens.

Knows a decode function or the tokens' bytes, no tokenizer and no request. The work of a token is bounded: its bytes are
decoded, or where a tokenizer has no bytes a window of a few tokens again, and stop texts are matched character by
character.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

REPLACEMENT = "�"

# Tokens of context kept when the window is cut. A character has at most 4 bytes, so its first token is among them.
CONTEXT = 6
# The window grows to this many tokens before it is cut back, so that not every token pays for a cut.
WINDOW = 3 * CONTEXT
# Bytes of one run that are held back whole before its characters are let go one by one; a family emoji has 25.
LONGEST_HELD_RUN = 32


class Detokenizer(Protocol):
    """Tokens in, final text out: joined, the texts equal decode(all ids)."""

    def push(self, token_id: int) -> str:
        """Take a token; returns the text that became final."""
        ...

    def pending_text(self) -> str:
        """Text that is held back although it is whole characters."""
        ...

    def flush(self) -> str:
        """What is still held back, as decode shows it at the end of the tokens."""
        ...


class ByteDetokenizer:
    """A Detokenizer for tokens that are bytes wherever they stand, as those of byte-level BPE.

    Held back are the bytes of a character that is not whole yet. Bytes that are no UTF-8 become U+FFFD as in Rust's
    from_utf8_lossy, which writes the decode of all ids: one for each longest beginning of a character (Unicode 3.9,
    "substitution of maximal subparts").
    """

    def __init__(self, token_bytes: Mapping[int, bytes]) -> None:
        self._token_bytes = token_bytes
        self._held = b""

    def push(self, token_id: int) -> str:
        """Take a token; returns the text that became final."""
        data = self._held + self._token_bytes[token_id]
        text, used = utf_8_decode(data, "replace")
        self._held = data[used:]
        return text

    def pending_text(self) -> str:
        """Nothing: a whole character is given out at once."""
        return ""

    def flush(self) -> str:
        """The unfinished character as U+FFFD."""
        text, self._held = self._held.decode(errors="replace"), b""
        return text


class WindowDetokenizer:
    """A Detokenizer that knows the decode function alone.

    The last few tokens are decoded with and without the newest one, and the difference is its text: no token is decoded
    alone, since a tokenizer may write the first one of a text differently (without its leading space). The last
    character is held back while it is U+FFFD, as it may be half of one; a real U+FFFD waits for the next token that has
    text, not longer.

    `byte_tokens` gives the byte of each token like <0x0A>, for tokenizers that spell rare characters so (byte fallback,
    as in SentencePiece). Their decode shows a run of such tokens as text when the whole run is UTF-8, and as one U+FFFD
    a byte when it is not. So a run is held back until it ends or can't become UTF-8 any more. One that is longer than
    LONGEST_HELD_RUN is let go character by character; if it turns out not to be UTF-8 after that, what was given out
    stays, where decode(all ids) replaces it as well. This is the only case in which the two differ.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], byte_tokens: Mapping[int, int] | None = None) -> None:
        self._decode = decode
        self._byte_tokens = byte_tokens or {}
        self._window: list[int] = []
        self._shown = ""  # decode(window)
        self._given = 0  # characters of it that were given out
        self._run: list[int] = []  # byte tokens held back
        self._last_byte: int | None = None  # of the run that is going on
        self._run_is_long = False
        self._run_is_broken = False

    def push(self, token_id: int) -> str:
        """Take a token; returns the text that became final."""
        if token_id in self._byte_tokens:
            return self._take_byte(token_id)
        if self._last_byte is None:
            return self._take(token_id)
        return "" if self._is_left_out(token_id) else self._end_run() + self._take(token_id)

    def pending_text(self) -> str:
        """Text that is held back although it is whole characters: it stands if no byte token follows."""
        return self._run_text() if self._run and _utf8_state(self._run_bytes()) == "whole" else ""

    def flush(self) -> str:
        """What is still held back, as decode shows it at the end of the tokens."""
        return self._end_run() if self._last_byte is not None else self._release()

    def _take(self, token_id: int) -> str:
        shown = self._decode([*self._window, token_id])
        if shown == self._shown and self._is_left_out(token_id):
            return ""  # as context it would be as good as none
        self._window.append(token_id)
        self._shown = shown
        text = self._give(len(shown) - shown.endswith(REPLACEMENT))
        if len(self._window) > WINDOW:
            held = len(self._shown) - self._given
            self._restart(self._window[-CONTEXT:], held)
        return text

    def _is_left_out(self, token_id: int) -> bool:
        """Whether decode shows nothing for it, as for a special token. Twice, since a first space may be stripped."""
        return not self._decode([token_id, token_id])

    def _take_byte(self, token_id: int) -> str:
        text = self._release()  # no byte token completes a character before its run
        self._last_byte = token_id
        self._run.append(token_id)
        state = _utf8_state(self._run_bytes())
        if self._run_is_broken or state == "broken":
            self._run_is_broken = True
            return text + self._give_run()
        self._run_is_long = self._run_is_long or len(self._run) >= LONGEST_HELD_RUN
        if self._run_is_long and state == "whole":
            return text + self._give_run()
        return text

    def _end_run(self) -> str:
        """Give out the run. Its last token, a run of its own, is context enough for what follows."""
        text = self._give_run()
        assert self._last_byte is not None
        self._restart([self._last_byte], held=0)
        self._last_byte = None
        self._run_is_long = self._run_is_broken = False
        return text

    def _give_run(self) -> str:
        text = self._run_text()
        if self._run and not self._window:
            self._window.append(self._run[-1])  # the text has begun
        self._run.clear()
        return text

    def _run_text(self) -> str:
        if not self._run:
            return ""
        if not self._window:  # the first text, of which a tokenizer may strip a space
            return self._decode(self._run)
        whole = not self._run_is_broken and _utf8_state(self._run_bytes()) == "whole"
        return self._run_bytes().decode() if whole else REPLACEMENT * len(self._run)

    def _run_bytes(self) -> bytes:
        return bytes(self._byte_tokens[token] for token in self._run)

    def _release(self) -> str:
        return self._give(len(self._shown))

    def _give(self, end: int) -> str:
        text = self._shown[self._given : end]
        self._given = max(self._given, end)
        return text

    def _restart(self, window: list[int], held: int) -> None:
        self._window = window
        self._shown = self._decode(window)
        self._given = len(self._shown) - held


def _utf8_state(data: bytes) -> str:
    """ "whole", "incomplete" (more bytes can make it whole) or "broken"."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return "incomplete" if error.reason == "unexpected end of data" else "broken"
    return "whole"


class StopMatcher:
    """Finds one stop text in a text that comes in pieces (Knuth, Morris, Pratt), in constant time a character.

    `matched` is the length of the longest end of the text so far that begins the stop text: what must be held back.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._shorter = [0] * len(stop)  # by length - 1: the next shorter end of that beginning that begins it too
        for place in range(1, len(stop)):
            self._shorter[place] = self._next(self._shorter[place - 1], stop[place])

    def _next(self, matched: int, char: str) -> int:
        while matched and (matched == len(self.stop) or self.stop[matched] != char):
            matched = self._shorter[matched - 1]
        return matched + (self.stop[matched] == char)

    def feed(self, text: str, *, active: bool) -> int | None:
        """Read on; when active, returns the place in `text` after the first full match and stays there."""
        for place, char in enumerate(text):
            self.matched = self._next(self.matched, char)
            if self.matched == len(self.stop):
                if active:
                    return place + 1
                self.matched = self._shorter[-1]
        return None

    def would_match(self, text: str) -> bool:
        """Whether `text`, if it came next, would complete the stop text."""
        matched = self.matched
        found = self.feed(text, active=True) is not None
        self.matched = matched
        return found


class TextStream:
    """Text of one request up to its first stop text. Deltas never change; joined they are the text.

    The first token that completes a stop text ends the text; of several that it completes, the one that begins first
    counts. The beginning of a possible stop text is held back. As in vLLM, a stop text that is complete within the
    first `min_tokens` tokens ends nothing and stays in the text; one that is only begun there ends it.
    """

    def __init__(self, detokenizer: Detokenizer, stop: tuple[str, ...], *, min_tokens: int = 0) -> None:
        self._detokenizer = detokenizer
        self._matchers = [StopMatcher(text) for text in stop]
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._sent: list[str] = []
        self._unsent = ""
        self.stopped = False

    @property
    def text(self) -> str:
        """The final text so far, the stop text excluded."""
        return "".join(self._sent) + self._unsent

    def push(self, token_id: int) -> None:
        """Take a token; sets `stopped` when a stop text is complete."""
        self._num_tokens += 1
        text = self._detokenizer.push(token_id)
        if not self._matchers:
            self._unsent += text
            return
        self._accept(text)
        if self.stopped or not self._active:
            return
        pending = self._detokenizer.pending_text()
        if pending and any(matcher.would_match(pending) for matcher in self._matchers):
            self._accept(self._detokenizer.flush())  # the request ends here, so nothing follows that could change it

    def take(self, *, final: bool) -> str:
        """The new text that is safe to send; with `final` all of it, an unfinished character as decode shows it."""
        if final and not self.stopped:
            self._accept(self._detokenizer.flush())
        delta, self._unsent = self._unsent, ""
        if self._matchers and not (final or self.stopped):
            end = len(delta) - max(matcher.matched for matcher in self._matchers)
            delta, self._unsent = delta[:end], delta[end:]
        self._sent.append(delta)
        return delta

    def receive(self, text: str) -> None:
        """Text that another stream of the same answer has sent."""
        self._sent.append(text)

    @property
    def _active(self) -> bool:
        return self._num_tokens > self._min_tokens

    def _accept(self, text: str) -> None:
        if not text:
            return
        found: list[int] = []
        for matcher in self._matchers:
            end = matcher.feed(text, active=self._active)
            if end is not None:
                found.append(len(self._unsent) + end - len(matcher.stop))
        self._unsent += text
        if found:
            self._unsent = self._unsent[: min(found)]
            self.stopped = True

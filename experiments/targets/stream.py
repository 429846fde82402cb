"""Reading an answer that an OpenAI-compatible server streams: bytes into events, events into chunks of text.

Owns the event-stream format and which field of a chunk means what. Knows no HTTP library and no clock: who reads the
socket says when bytes came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"
MOST_LINE_BYTES = 8 * 2**20
MOST_ANSWER_BYTES = 256 * 2**20  # of one answer, events and all: a server may go on for ever
# Ways in which servers say that an answer ended in order.
STOPPED = ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "tool_calls", "function_call")
LIMITED = ("length", "max_tokens")


class BrokenStreamError(Exception):
    """What came is not an answer; the text is one line that says why."""


class EventStream:
    """Splits bytes into the data of server-sent events, however they are cut into pieces on the way."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of every event that is complete with `piece`; BrokenStreamError for what is no event stream."""
        self._size += len(piece)
        if self._size > MOST_ANSWER_BYTES:
            raise BrokenStreamError(f"an answer of more than {MOST_ANSWER_BYTES // 2**20} MiB")
        *lines, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            raise BrokenStreamError(f"a line of more than {MOST_LINE_BYTES // 2**20} MiB")
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                yield self._event()

    def close(self) -> Iterator[str]:
        """What is left when the connection has closed: a last event may lack its blank line."""
        if self._rest.strip():
            self._take(self._rest)
        if self._data:
            yield self._event()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name not in (b"", b"event", b"id", b"retry", b"\r"):  # an empty name is a comment, kept alive by servers
            raise BrokenStreamError(f"not an event stream: {line[:60].decode(errors='replace')!r}")

    def _event(self) -> str:
        found = b"\n".join(self._data)
        self._data = []
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise BrokenStreamError(f"not UTF-8: {found[:40]!r}") from None


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event with a piece of an answer. Reasoning and arguments of tools are text too.

    `tokens` is how many it has, by log-probabilities; `total` how many the answer has with it, by usage; None unsaid.
    """

    at_ns: int
    text: str
    tokens: int | None
    total: int | None


@dataclass
class Answer:
    """One answer as it came. Times in ns on the reader's clock. `usage` is the server's last word on tokens.

    first_event_ns: the first event with `choices`, which may be without text. done_ns: the end mark.
    """

    chunks: list[Chunk] = field(default_factory=list)
    first_event_ns: int | None = None
    done_ns: int | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(chunk.text for chunk in self.chunks)

    def take(self, data: str, at_ns: int) -> None:
        """Take the data of one event; BrokenStreamError for an error event and for what is no chunk."""
        if data.strip() == DONE:
            self.done_ns = at_ns
            return
        event = _json(data)
        if event.get("error") or event.get("object") == "error":
            raise BrokenStreamError(f"the server says: {error_line(event)}")
        usage, choices = event.get("usage"), event.get("choices")
        if isinstance(usage, dict):
            self.usage = usage
        if not isinstance(choices, list):
            raise BrokenStreamError(f"an event without choices: {one_line(data)}")
        if not choices:
            return
        if self.first_event_ns is None:
            self.first_event_ns = at_ns
        choice = choices[0] if isinstance(choices[0], dict) else {}
        if choice.get("finish_reason"):
            self.finish_reason = str(choice["finish_reason"])
        total = usage.get("completion_tokens") if isinstance(usage, dict) else None
        self.chunks.append(Chunk(at_ns, _text(choice), _logprob_tokens(choice), total if _is_count(total) else None))

    def how_it_ended(self) -> str:
        """ "stop" or "length"; BrokenStreamError when it did not end in order."""
        reason = self.finish_reason
        if reason in STOPPED or (reason is None and self.done_ns is not None and self.text):
            return "stop"
        if reason in LIMITED:
            return "length"
        if reason is not None:
            raise BrokenStreamError(f"the server ended the answer: {one_line(reason)}")
        raise BrokenStreamError(f"the stream ended before the answer did, after {len(self.chunks)} chunks")

    def usage_count(self, name: str) -> int | None:
        """prompt_tokens or completion_tokens as the server counted them."""
        value = (self.usage or {}).get(name)
        return value if _is_count(value) else None

    def cached_tokens(self) -> int | None:
        """Prompt tokens that the server found in its prefix cache, where it says so."""
        details = (self.usage or {}).get("prompt_tokens_details")
        value = details.get("cached_tokens") if isinstance(details, dict) else None
        return value if _is_count(value) else None


HALF = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(text: str) -> Any:
    """JSON from a server. Half of a character that is escaped alone, which nothing could store, becomes U+FFFD."""
    found = json.loads(text)
    return _storable(found) if HALF.search(text) else found


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(name): _storable(item) for name, item in value.items()}
    return value


def error_line(body: Any) -> str:
    """What an error object of OpenAI's shape says, in one line."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or json.dumps(error)
    return one_line(str(error))


def one_line(text: str, most: int = 160) -> str:
    """A text on one line, cut to `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _json(data: str) -> dict[str, Any]:
    try:
        event = load_json(data)
    except (ValueError, RecursionError):
        raise BrokenStreamError(f"an event that is not JSON: {one_line(data)}") from None
    if not isinstance(event, dict):
        raise BrokenStreamError(f"an event that is not an object: {one_line(data)}")
    return event


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(choice: dict[str, Any]) -> str:
    """Text of a completion's or a chat's chunk: the answer, what a model thinks before it, and arguments of tools."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return _string(choice.get("text"))
    thought = _string(delta.get("reasoning_content")) or _string(delta.get("reasoning"))
    calls = delta.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    called = "".join(
        _string(function.get("name")) + _string(function.get("arguments"))
        for function in functions
        if isinstance(function, dict)
    )
    return thought + _string(delta.get("content")) + called


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _logprob_tokens(choice: dict[str, Any]) -> int | None:
    """Tokens of a chunk by its log-probabilities: a completion has `tokens`, a chat `content`."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return None
    listed = logprobs.get("tokens") or logprobs.get("content")
    return len(listed) if isinstance(listed, list) and listed else None

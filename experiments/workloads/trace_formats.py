"""Readers of published request traces, one function a format. Rows come as the file says; nothing is scaled here.

| format | file | what it has |
| --- | --- | --- |
| azure | Azure LLM inference 2023 and 2024, csv | TIMESTAMP, ContextTokens, GeneratedTokens |
| burstgpt | BurstGPT, csv, old and new columns | Timestamp in s, Request tokens, Response tokens |
| mooncake | Mooncake, jsonl | timestamp in ms, input_length, output_length, hash_ids of 512-token blocks |
| sharegpt | ShareGPT, json or jsonl | conversations of real texts, no times |
| sharegpt-lengths | csv with conv, turn, human_chars, gpt_chars | lengths of conversations in characters, no times |
| questions | MT-bench and Spec-Bench questions, jsonl | turns of real texts, no answers, no times |
| csv | our own | arrival_s, prompt_tokens, output_tokens |
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from experiments.workloads.fields import MOST_TOKENS
from ledger.errors import CannotRunError, InputError

MOST_LINE, MOST_LIST = 16 * 2**20, 1024 * 2**20  # characters of one line, and of a list, which is read whole

NS_PER_S = 1_000_000_000
CHARS_PER_TOKEN = 4  # of a file that has no tokens; said in the workload's notes
PEOPLE = ("human", "user")
MODELS = ("gpt", "assistant", "chatgpt", "bing", "bard", "model")


@dataclass(frozen=True)
class Row:
    """One request of a trace. What the file does not have is None; times in ns on the file's own clock.

    `conversation` names the session that a row is the next turn of. A row with `dropped` is left out for that reason.
    """

    at_ns: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt: str | None = None
    answer: str | None = None
    hash_ids: tuple[int, ...] | None = None
    conversation: str | None = None
    dropped: str | None = None


@dataclass(frozen=True)
class Format:
    """How a format is read. `what` names the rows; `note` is said wherever the trace is."""

    read: Callable[[Path], Iterator[Row]]
    what: str
    note: str = ""


def azure(path: Path) -> Iterator[Row]:
    """Azure's csv. A row without a context or an answer is dropped."""
    for line, row in _csv(path):
        yield _sized(
            at_ns=_moment_ns(_text(row, "TIMESTAMP", line), line),
            prompt=_count(row, "ContextTokens", line),
            output=_count(row, "GeneratedTokens", line),
        )


def burstgpt(path: Path) -> Iterator[Row]:
    """BurstGPT's csv. A response of 0 tokens is a request that failed."""
    for line, row in _csv(path):
        yield _sized(
            at_ns=_seconds_ns(row, "Timestamp", line),
            prompt=_count(row, "Request tokens", line),
            output=_count(row, "Response tokens", line),
        )


def ours(path: Path) -> Iterator[Row]:
    """arrival_s, prompt_tokens, output_tokens."""
    for line, row in _csv(path):
        yield _sized(
            at_ns=_seconds_ns(row, "arrival_s", line),
            prompt=_count(row, "prompt_tokens", line),
            output=_count(row, "output_tokens", line),
        )


def mooncake(path: Path) -> Iterator[Row]:
    """Mooncake's jsonl. The last hash is that of a block which need not be full."""
    for line, row in _jsonl(path):
        ids = row.get("hash_ids")
        if not isinstance(ids, list) or not all(isinstance(i, int) and i >= 0 for i in ids):
            raise InputError(f"line {line} hash_ids", ids, "a list of whole numbers from 0")
        made = _sized(
            at_ns=_milliseconds_ns(row, "timestamp", line),
            prompt=_count(row, "input_length", line),
            output=_count(row, "output_length", line),
        )
        yield made if made.dropped else Row(made.at_ns, made.prompt_tokens, made.output_tokens, hash_ids=tuple(ids))


def sharegpt(path: Path) -> Iterator[Row]:
    """ShareGPT's conversations: each message of a person that a model answered is a turn; what comes before is passed
    over, and the rest of a conversation is dropped where two of one side follow each other."""
    for place, item in _items(path):
        yield from _conversation(str(item.get("id", place)), place, item.get("conversations") or [])


def _conversation(name: str, place: int, messages: Any) -> Iterator[Row]:
    if not isinstance(messages, list):
        raise InputError(f"item {place} conversations", messages, "a list of messages")
    said = [(_who(message), _said(message)) for message in messages if isinstance(message, Mapping)]
    while said and said[0][0] != "person":
        said = said[1:]
    # The place takes part: parts of one conversation have stood under one id.
    name = f"{place}:{name}"
    for turn in range(0, len(said), 2):
        pair = said[turn : turn + 2]
        if [who for who, _ in pair] != ["person", "model"] or not all(text for _, text in pair):
            yield Row(conversation=name, dropped="messages without an answer, or out of turn")
            return
        yield Row(prompt=pair[0][1], answer=pair[1][1], conversation=name)


def _who(message: Mapping[str, Any]) -> str:
    who = str(message.get("from", message.get("role", ""))).lower()
    return "person" if who in PEOPLE else "model" if who in MODELS else who


def _said(message: Mapping[str, Any]) -> str:
    said = message.get("value", message.get("content", ""))
    return said.strip() if isinstance(said, str) else ""


def sharegpt_lengths(path: Path) -> Iterator[Row]:
    """Lengths of ShareGPT's turns in characters, at CHARS_PER_TOKEN."""
    for line, row in _csv(path):
        prompt, output = (math.ceil(_count(row, name, line) / CHARS_PER_TOKEN) for name in ("human_chars", "gpt_chars"))
        made = _sized(at_ns=None, prompt=prompt, output=output)
        name = _text(row, "conv", line)
        if made.dropped:
            yield Row(conversation=name, dropped=made.dropped)
        else:
            yield Row(prompt_tokens=prompt, output_tokens=output, conversation=name)


def questions(path: Path) -> Iterator[Row]:
    """MT-bench's and Spec-Bench's questions: each with one or two turns."""
    for line, row in _jsonl(path):
        turns = row.get("turns")
        if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
            raise InputError(f"line {line} turns", turns, "a list of texts")
        for turn in turns:
            yield Row(prompt=turn, conversation=f"{line}:{row.get('question_id', line)}")


FORMATS: dict[str, Format] = {
    "azure": Format(azure, "requests"),
    "burstgpt": Format(burstgpt, "requests"),
    "mooncake": Format(mooncake, "requests"),
    "sharegpt": Format(sharegpt, "turns"),
    "sharegpt-lengths": Format(
        sharegpt_lengths, "turns", f"lengths are estimated at {CHARS_PER_TOKEN} characters a token; texts are our own"
    ),
    "questions": Format(questions, "turns", "the file has no answers: they end by themselves, at most at the limit"),
    "csv": Format(ours, "requests"),
}
_HEADERS = {
    "azure": {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
    "burstgpt": {"Timestamp", "Request tokens", "Response tokens"},
    "sharegpt-lengths": {"conv", "turn", "human_chars", "gpt_chars"},
    "csv": {"arrival_s", "prompt_tokens", "output_tokens"},
}
_KEYS = {"mooncake": {"timestamp", "input_length", "hash_ids"}, "sharegpt": {"conversations"}, "questions": {"turns"}}


def detect(path: Path) -> str:
    """The format of a file, by its header or by the keys of its first object. InputError when it is none of FORMATS."""
    first = _first(path)
    names: set[str] = set()
    if path.suffix == ".csv":
        names, known = {name.strip() for name in next(csv.reader([first]), [])}, _HEADERS
    elif path.suffix == ".jsonl":
        try:
            found = json.loads(first)
        except ValueError:
            found = None
        names, known = set(found) if isinstance(found, dict) else set(), _KEYS
    else:
        return "sharegpt"
    for name, needed in known.items():
        if needed <= names:
            return name
    raise InputError("workload", str(path), f"a trace in a known format ({', '.join(FORMATS)}), or trace:FORMAT:PATH")


def _first(path: Path) -> str:
    with _opened(path) as file:
        try:
            return file.readline(MOST_LINE).removeprefix("\ufeff").strip()
        except UnicodeDecodeError:
            raise InputError("workload", str(path), "a text file in UTF-8") from None


def _opened(path: Path) -> Any:
    if not path.is_file() and path.exists():  # a device or a pipe may never end
        raise InputError("workload", str(path), "a regular file")
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise CannotRunError(f"workload: {path} can't be read ({error.strerror})") from None


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows by header, with their line."""
    with _opened(path) as file:
        reader = csv.DictReader(_lines(file, path))
        try:
            for row in reader:
                yield reader.line_num, {str(name).strip(): value for name, value in row.items()}
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"line {reader.line_num + 1}", str(path), f"csv in UTF-8 ({error})") from None


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects, one a line; blank lines are passed over."""
    with _opened(path) as file:
        for number, line in enumerate(_lines(file, path), 1):
            if line.strip():
                yield number, _object(line, f"line {number}")


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    try:
        while line := file.readline(MOST_LINE):
            if len(line) == MOST_LINE:
                raise InputError("workload", str(path), f"lines of fewer than {MOST_LINE:,} characters")
            yield line
    except UnicodeDecodeError:
        raise InputError("workload", str(path), "a text file in UTF-8") from None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(where, text.strip()[:60], "a JSON object")
    return found


def _items(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a JSON list, or one a line for .jsonl."""
    if path.suffix == ".jsonl":
        yield from _jsonl(path)
        return
    with _opened(path) as file:
        try:
            text = file.read(MOST_LIST + 1)
            if len(text) > MOST_LIST:
                raise InputError("workload", str(path), f"at most {MOST_LIST:,} characters; JSONL has no limit")
            found = json.loads(text)
        except (ValueError, UnicodeDecodeError, RecursionError) as error:
            raise InputError("workload", str(path), f"JSON ({error})") from None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InputError("workload", str(path), "a JSON list of conversations")
    yield from enumerate(found)


def _sized(*, at_ns: int | None, prompt: int, output: int) -> Row:
    if output == 0:
        return Row(at_ns=at_ns, dropped="no answer (0 tokens)")
    if prompt == 0:
        return Row(at_ns=at_ns, dropped="no prompt (0 tokens)")
    return Row(at_ns, prompt, output)


def _text(row: Mapping[str, Any], name: str, line: int) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"line {line} {name}", value, "a value")
    return value.strip()


def _number(row: Mapping[str, Any], name: str, line: int) -> float:
    try:
        value = float(row.get(name))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(f"line {line} {name}", row.get(name), "a number from 0")
    return value


def _count(row: Mapping[str, Any], name: str, line: int) -> int:
    value = _number(row, name, line)
    if value % 1 or value > MOST_TOKENS:
        raise InputError(f"line {line} {name}", row.get(name), f"a whole number from 0 to {MOST_TOKENS:,}")
    return int(value)


def _seconds_ns(row: Mapping[str, Any], name: str, line: int) -> int:
    return round(_number(row, name, line) * NS_PER_S)


def _milliseconds_ns(row: Mapping[str, Any], name: str, line: int) -> int:
    return round(_number(row, name, line) * 1_000_000)


def _moment_ns(text: str, line: int) -> int:
    """A date and time with any number of fractional digits and perhaps a zone, in ns; only differences are used."""
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        moment = None
    if moment is None or (dot and not digits):
        raise InputError(f"line {line} TIMESTAMP", text, "a date and time, as 2023-11-16 18:15:46.6805900")
    since = moment.replace(tzinfo=None) - (moment.utcoffset() or datetime.min - datetime.min) - datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + int(digits[:9].ljust(9, "0") or 0)

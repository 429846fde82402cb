"""What a server understands of the OpenAI protocol and its usual extras, found by asking it politely before a run.

The richest request is tried first; what the server refuses is left out, one thing at a time, the one that its message
names first. Nothing that a run needs is assumed: what was left out is said in the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.targets.client import Client, FailedRequestError
from ledger.errors import CannotRunError

COMPLETIONS, CHAT = "completions", "chat"
PATHS = {COMPLETIONS: "/v1/completions", CHAT: "/v1/chat/completions"}
# In the order in which they are given up. Each name is what a server's message would mention.
EXTRAS = ("continuous_usage_stats", "min_tokens", "ignore_eos", "prompt_token_ids", "seed", "stream_options")
MENTIONED = {"prompt_token_ids": ("prompt", "token id"), "stream_options": ("stream_options", "include_usage")}
REFUSED = (400, 404, 405, 422, 500, 501)
GONE = (404, 405, 501)


@dataclass(frozen=True)
class Dialect:
    """How requests are worded. extras: those of EXTRAS that the server takes."""

    api: str
    model: str | None
    extras: tuple[str, ...] = EXTRAS

    @property
    def path(self) -> str:
        """Where requests go."""
        return PATHS[self.api]

    @property
    def takes_ids(self) -> bool:
        """Whether prompts go as token ids."""
        return self.api == COMPLETIONS and "prompt_token_ids" in self.extras

    @property
    def exact_lengths(self) -> bool:
        """Whether the server was asked for answers of exactly a length; else it ends them where its model does."""
        return "ignore_eos" in self.extras

    def body(self, prompt: str | Sequence[int], max_tokens: int, *, exact: bool) -> dict[str, Any]:
        """A streamed greedy request. exact: the answer must have max_tokens, as far as the server can be told so."""
        body: dict[str, Any] = {"stream": True, "temperature": 0, "max_tokens": max_tokens}
        if self.model is not None:
            body["model"] = self.model
        if self.api == CHAT:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
        if "seed" in self.extras:
            body["seed"] = 0
        if exact and "ignore_eos" in self.extras:
            body["ignore_eos"] = True
        if exact and "min_tokens" in self.extras:
            body["min_tokens"] = max_tokens
        if "stream_options" in self.extras:
            body["stream_options"] = {"include_usage": True}
            if "continuous_usage_stats" in self.extras:
                body["stream_options"]["continuous_usage_stats"] = True
        return body

    def without(self, extra: str) -> Dialect:
        """The same without one of its extras."""
        return replace(self, extras=tuple(name for name in self.extras if name != extra))

    def describe(self) -> dict[str, Any]:
        """What the record says of it."""
        return {
            "api": self.api,
            "model": self.model,
            "prompts": "token ids" if self.takes_ids else "text",
            "lengths": "asked exactly (ignore_eos)" if self.exact_lengths else "the server's",
            "left_out": [name for name in EXTRAS if name not in self.extras],
        }


async def find_dialect(
    client: Client, api: str, model: str | None, *, text: str, token_ids: Sequence[int] | None
) -> Dialect:
    """The richest way to ask that the server takes, tried with a prompt as `text` and, unless None, as `token_ids`.

    api: "auto" takes completions where there are any. CannotRunError with the server's words when it takes none.
    """
    said = ""
    for candidate in (COMPLETIONS, CHAT) if api == "auto" else (api,):
        dialect = Dialect(candidate, model)
        if candidate == CHAT or token_ids is None:
            dialect = dialect.without("prompt_token_ids")
        while True:
            prompt = token_ids if dialect.takes_ids and token_ids is not None else text
            attempt = await client.stream(dialect.path, dialect.body(prompt, 2, exact=True))
            if attempt.error is None:
                return dialect
            said = attempt.error
            if attempt.status in (401, 403):
                raise CannotRunError(f"endpoint: {client.address} refuses the key ({said}); --key-env NAME names one")
            dropped = _to_drop(dialect, said) if attempt.status in REFUSED else None
            if dropped is None or attempt.status in GONE:
                break
            dialect = dialect.without(dropped)
        if attempt.status not in REFUSED:
            break
    raise CannotRunError(f"endpoint: {client.address} answers no request: {said}")


def _to_drop(dialect: Dialect, said: str) -> str | None:
    """The extra that a refusal mentions, else the next in order; None when none is left."""
    left = [name for name in EXTRAS if name in dialect.extras]
    lower = said.lower()
    mentioned = [name for name in left if any(word in lower for word in MENTIONED.get(name, (name,)))]
    return next(iter(mentioned or left), None)


async def find_model(client: Client, wanted: str | None) -> tuple[str | None, Mapping[str, Any]]:
    """(the model to ask for, what the server says of it). CannotRunError when either is not there.

    A server without a list of models is asked for none, unless one is named.
    """
    try:
        status, body = await client.call("GET", "/v1/models")
    except FailedRequestError as error:
        raise CannotRunError(f"endpoint: {client.address} does not answer: {error}") from None
    if status in (401, 403):
        raise CannotRunError(f"endpoint: {client.address} refuses the key (HTTP {status}); --key-env NAME names one")
    listed = body.get("data") if isinstance(body, dict) else None
    models = [item for item in listed if isinstance(item, dict) and item.get("id")] if isinstance(listed, list) else []
    if status != 200 or not models:
        return wanted, {}
    names = [str(item["id"]) for item in models]
    if wanted is None and len(names) > 1:
        raise CannotRunError(f"endpoint_model: {client.address} has several; name one of {', '.join(names[:20])}")
    if wanted is not None and wanted not in names:
        raise CannotRunError(f"endpoint_model: {client.address} has no {wanted}; it has {', '.join(names[:20])}")
    return wanted or names[0], models[names.index(wanted or names[0])]


async def same_tokens(client: Client, dialect_model: str | None, probes: Mapping[str, Sequence[int]]) -> str | None:
    """How it is known that the server's tokenizer is ours, None where it is not; `probes` are texts with our ids.

    Asked of /tokenize (vLLM, SGLang, llama.cpp) or /extras/tokenize (llama-cpp-python); where there is neither, the
    server's own count of prompt tokens must be ours for every text, which other tokenizers don't meet on such texts.
    """
    for path, name in (("/tokenize", "prompt"), ("/extras/tokenize", "input")):
        found = [await _tokenized(client, path, name, text, dialect_model) for text in probes]
        if None not in found:
            same = all(_alike(ids or [], list(ours)) for ids, ours in zip(found, probes.values(), strict=True))
            return f"its {path} gives the same ids" if same else None
    counts = [await _counted(client, text, dialect_model) for text in probes]
    same = counts == [len(ids) for ids in probes.values()]
    return f"it counts the same number of tokens in {len(probes)} texts" if same else None


def _alike(ids: list[int], ours: list[int]) -> bool:
    """The same ids; either side may have a mark of the beginning more."""
    return ids == ours or ids[1:] == ours or ids == ours[1:]


async def _tokenized(client: Client, path: str, name: str, text: str, model: str | None) -> list[int] | None:
    body = {name: text, "content": text, **({} if model is None else {"model": model})}
    try:
        status, found = await client.call("POST", path, body)
    except FailedRequestError:
        return None
    tokens = found.get("tokens") if status == 200 and isinstance(found, dict) else None
    return tokens if isinstance(tokens, list) and tokens else None


async def _counted(client: Client, text: str, model: str | None) -> int | None:
    body = {"prompt": text, "max_tokens": 1, "temperature": 0, **({} if model is None else {"model": model})}
    try:
        status, found = await client.call("POST", PATHS[COMPLETIONS], body)
    except FailedRequestError:
        return None
    usage = found.get("usage") if status == 200 and isinstance(found, dict) else None
    return usage.get("prompt_tokens") if isinstance(usage, dict) else None

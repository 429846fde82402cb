"""Requests to a server from a few threads, as clients of all kinds send them: streamed, whole, wrong, and dropped."""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

SENTENCE = "the server answers every one of many clients while they come and go at their own pace"
THREADS, MOST_WAITING, TIMEOUT_S = 4, 16, 120


class Requests:
    """Sends what it is told to and counts what came of it: a status, `dropped` by us, or `lost`, which must not be."""

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://")
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="client")
        self._under_way: set[Future[str]] = set()
        self.counts: Counter[str] = Counter()

    def send(self, kind: str, seed: int) -> None:
        """Send one request of a kind (stream, whole, chat, wrong, dropped); nothing while many are under way."""
        self._collect()
        if len(self._under_way) < MOST_WAITING:
            self._under_way.add(self._pool.submit(self._one, kind, seed))

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown()
        self._collect()

    def _collect(self) -> None:
        for future in [one for one in self._under_way if one.done()]:
            self._under_way.discard(future)
            self.counts[future.result()] += 1

    def _one(self, kind: str, seed: int) -> str:
        draw = random.Random(seed)
        prompt = " ".join(draw.choices(SENTENCE.split(), k=draw.randint(2, 24)))
        body: dict[str, Any] = {"max_tokens": draw.randint(1, 24), "temperature": draw.choice((0, 1)), "seed": seed}
        body |= {"messages": [{"role": "user", "content": prompt}]} if kind == "chat" else {"prompt": prompt}
        body |= {"stream": True} if kind in ("stream", "dropped") else {}
        body |= {"max_tokens": -1} if kind == "wrong" else {}
        connection = http.client.HTTPConnection(self._host, timeout=TIMEOUT_S)
        try:
            path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if kind == "dropped":
                answer.readline()
                return "dropped"
            text = answer.read()
            if answer.status == 200 and kind == "stream" and not text.endswith(b"data: [DONE]\n\n"):
                return "lost: a stream without an end"
            return f"{kind} {answer.status}"
        except (OSError, http.client.HTTPException) as error:
            return f"lost: {kind} {type(error).__name__}"
        finally:
            connection.close()

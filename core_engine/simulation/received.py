"""ReceivingLayout: KV blocks of requests whose prompt was computed by another replica (prefill/decode disaggregation).

Wraps a layout of the engine: a request that brings its keys and values holds blocks for them when it is admitted and
computes only what follows. After a preemption they are gone and it computes its prompt itself.
"""

from __future__ import annotations

from typing import Any

from core_engine.kv_layout import KVLayout
from core_engine.request import Request


class ReceivingLayout:
    """Everything but `admit` is the wrapped layout's."""

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout
        self._tokens: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layout, name)

    def expect(self, request_id: str, num_tokens: int) -> None:
        """A request brings the keys and values of its first tokens."""
        self._tokens[request_id] = num_tokens

    def admit(self, request: Request, promised: int, *, alone: bool) -> bool:
        """As the wrapped layout; what the request brings counts as computed."""
        if not self._layout.admit(request, promised, alone=alone):
            return False
        brought = self._tokens.pop(request.id, 0)
        if brought > request.num_computed:
            if self._layout.grow(request, brought) is None:
                self._tokens[request.id] = brought
                self._layout.release(request)
                request.num_computed = 0
                return False
            request.num_computed = brought
        return True

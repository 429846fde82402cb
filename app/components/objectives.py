"""The objectives of a service: one input for them on every page that judges by them."""

from __future__ import annotations

from app.components.inputs import text
from app.preferences import preferences
from app.state import t

EXAMPLE = "ttft_p95=0.5,itl_p95=0.1"  # as it is typed, in any language


def objectives(page: str, label: str, explained: str) -> str:
    """Its input, which starts from what Settings say; empty is none. label, explained: keys of messages."""
    return text(page, "slo", t(label), preferences().slo, placeholder=EXAMPLE, help=t(explained), empty=True)

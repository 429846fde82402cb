"""What the driver says to a side, and what a side answers; Failed is the ranks' (parallel/messages.py).

Messages of one direction arrive in the order in which they were sent. Times are ns of the driver's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core_engine.disaggregation.leases import Lease
from core_engine.outputs import Output
from core_engine.request import Request
from core_engine.variables import Value

# -- to a side -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """Read the model of a configuration and compute with so many threads."""

    settings: Mapping[str, Value]
    threads: int


@dataclass(frozen=True)
class Open:
    """A new engine, of that number, instead of the one before; an area of so many units, and the driver's clock."""

    number: int
    settings: Mapping[str, Value]
    units: int
    unit_bytes: int
    origin_ns: int


@dataclass(frozen=True)
class Close:
    """Let go of the engine and of the area."""


@dataclass(frozen=True)
class Compute:
    """Take in a request. With a lease its KV goes there with its next token, and the request is let go of."""

    request: Request
    lease: Lease | None


@dataclass(frozen=True)
class Resume:
    """Run a request whose first num_computed tokens have their KV in the lease's units."""

    request: Request
    lease: Lease
    num_computed: int


@dataclass(frozen=True)
class Abort:
    """Drop a request, wherever it is; answered by Dropped in any case. sequence: its lease's, 0 without one."""

    request_id: str
    sequence: int


@dataclass(frozen=True)
class Forget:
    """Empty the prefix cache."""


@dataclass(frozen=True)
class Tell:
    """Say where memory and blocks stand."""


# -- from a side ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """weights_bytes: of the tensors held."""

    weights_bytes: int
    threads: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Opened:
    """What the engine of that number derived, and its environment."""

    number: int
    derived: Mapping[str, int]
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Closed:
    """The area may change its size."""


@dataclass(frozen=True)
class Copied:
    """A request's KV is in its lease's units. begin_ns, end_ns: of the copying; blocks, num_bytes: of the payload."""

    request_id: str
    sequence: int
    num_computed: int
    blocks: int
    num_bytes: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Stepped:
    """A step was committed. step: its record; looked_up: (request, tokens found in the prefix cache, tokens asked for)
    of those that it admitted; copied: those that were let go of behind it, whose outputs are in the same message;
    scored: (request, log-probabilities) of scoring requests that ended."""

    step: dict[str, Any]
    outputs: tuple[Output, ...]
    looked_up: tuple[tuple[str, int, int], ...]
    copied: tuple[Copied, ...]
    scored: tuple[tuple[str, tuple[float, ...]], ...]


@dataclass(frozen=True)
class Resumed:
    """A request runs from the KV it brought. found_blocks of it were in the prefix cache already and not copied."""

    request_id: str
    sequence: int
    begin_ns: int
    end_ns: int
    num_bytes: int
    found_blocks: int


@dataclass(frozen=True)
class Torn:
    """A request's KV was not what was announced; nothing of it is kept."""

    request_id: str
    sequence: int
    what: str


@dataclass(frozen=True)
class Dropped:
    """A request is gone from the side; its lease is neither written nor read any more."""

    request_id: str
    sequence: int


@dataclass(frozen=True)
class Forgotten:
    """Blocks whose content could have been found."""

    blocks: int


@dataclass(frozen=True)
class Told:
    """journal: what happened to blocks since the last step; rss_bytes: resident memory, None where unknown."""

    journal: tuple[Any, ...]
    used_blocks: int
    rss_bytes: int | None

"""WorkloadSpec: a workload before it is drawn, whether built in or read from a user's file."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from experiments.workloads.arrivals import Arrivals, Burst, Think
from experiments.workloads.fields import MOST_TOKENS, number, whole
from experiments.workloads.lengths import Fixed, Lengths, ranks_of
from experiments.workloads.stock import STOCKS
from ledger.errors import InputError

# plain: sentences, exact. question: a short question, about as long as asked. repeat, rename: a text or a function to
# be given back, at least as long as asked. questions, questions-zh: written ones that come again, as long as they are.
# The others are our stocks, exact.
ALONE = ("repeat", "rename", "questions", "questions-zh")  # one turn
WITHOUT_PREFIX = ("repeat", "rename")
TEXTS = ("plain", "question", *ALONE, *STOCKS)
MOST_REQUESTS = 10_000


@dataclass(frozen=True)
class Prefixes:
    """Texts that many prompts begin with: `groups` of them with at least `tokens` tokens each.

    The k-th most popular group is taken with a probability proportional to k ** -popularity; 0 is all alike.
    """

    tokens: int
    groups: int = 1
    popularity: float = 0.0

    def __post_init__(self) -> None:
        whole("tokens", self.tokens, 1, MOST_TOKENS)
        whole("groups", self.groups, 1, MOST_REQUESTS)
        number("popularity", self.popularity, inclusive=True)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """The group of each of `count` conversations."""
        if self.groups == 1:
            return [0] * count
        weights = np.arange(1, self.groups + 1, dtype=float) ** -self.popularity
        return [int(group) for group in ranks_of(weights, count, rng)]


@dataclass(frozen=True)
class Sessions:
    """Conversations of several turns. `turns` is how many requests each has; `think` the pause between an answer and
    the next turn. Arrivals are those of the first turns."""

    turns: Lengths
    think: Think = field(default_factory=lambda: Think(0.0))


@dataclass(frozen=True)
class ClosedLoop:
    """`clients` that each send their next request when the answer before it has ended, plus a pause."""

    clients: int
    think: Think = field(default_factory=lambda: Think(0.0))

    def __post_init__(self) -> None:
        whole("clients", self.clients, 1, MOST_REQUESTS)


@dataclass(frozen=True)
class WorkloadSpec:
    """How many requests, how long, and when they come.

    `prompt_tokens` is exact for plain and stock texts; a chat template and a shared prefix come on top.
    `output_tokens` is how long answers really are, `max_tokens` the limit every request states (None: its own length);
    clients state one limit for all, and nobody knows beforehand how long an answer will be. With `closed`, arrivals
    are not used.
    """

    name: str
    num_requests: int
    prompt_tokens: Lengths
    output_tokens: Lengths
    arrivals: Arrivals = field(default_factory=Burst)
    max_tokens: int | None = None
    text: str = "plain"
    chat: bool = False
    prefixes: Prefixes | None = None
    sessions: Sessions | None = None
    closed: ClosedLoop | None = None
    description: str = ""

    def __post_init__(self) -> None:
        whole("requests", self.num_requests, 1, MOST_REQUESTS)
        if self.max_tokens is not None:
            whole("max_tokens", self.max_tokens, 1, MOST_TOKENS)
        if self.text not in TEXTS:
            raise InputError("text", self.text, ", ".join(TEXTS))
        if self.text in ALONE and self.sessions:
            raise InputError("text", self.text, f"another text: {', '.join(ALONE)} have one turn")
        if self.text in WITHOUT_PREFIX and self.prefixes:
            raise InputError("text", self.text, f"another text: {', '.join(WITHOUT_PREFIX)} have no prefix")

    @property
    def rate_rps(self) -> float | None:
        """Requests/s of the arrivals; None when they come all at once or as answers end."""
        return None if self.closed else self.arrivals.mean_rps


ONE_TURN = Sessions(Fixed(1))

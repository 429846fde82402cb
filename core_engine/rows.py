"""From a request to its row of a plan: the tokens it computes and how its next token is to be chosen."""

from __future__ import annotations

from core_engine.plan import Row, RowSampling
from core_engine.request import Request


def row_of(request: Request, count: int) -> Row:
    """The row that computes the next `count` tokens of a request whose blocks are reserved."""
    start, end = request.num_computed, request.num_computed + count
    newest = end == len(request.tokens)
    return Row(
        request_id=request.id,
        start=start,
        tokens=tuple(request.tokens[start:end]),
        blocks=tuple(request.blocks),
        is_prefill=start < request.num_prompt_tokens or count > 1,
        sampling=_sampling(request) if newest and request.score_start is None else None,
        targets=() if request.score_start is None else _targets(request, start, end),
    )


def _sampling(request: Request) -> RowSampling:
    params = request.params
    return RowSampling(
        params=params,
        seed=request.seed,
        sample_index=request.sample_index,
        num_prompt_tokens=request.num_prompt_tokens,
        history=tuple(request.tokens) if params.needs_history else (),
        banned=request.end_token_ids if request.num_output_tokens < params.min_tokens else (),
    )


def _targets(request: Request, start: int, end: int) -> tuple[int, ...]:
    """For a scoring request: the token after each position, -1 where it is not asked for."""
    assert request.score_start is not None
    following = [*request.tokens[start + 1 : end + 1], -1][: end - start]
    return tuple(token if start + 1 + offset >= request.score_start else -1 for offset, token in enumerate(following))

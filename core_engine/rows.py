"""From a request to its row of a plan: the tokens it computes and how its next token is to be chosen."""

from __future__ import annotations

from core_engine.plan import Row, RowSampling
from core_engine.request import Request


def row_of(request: Request, count: int, num_drafts: int = 0) -> Row:
    """The row that computes the next `count` tokens of a request whose blocks are reserved, and then some drafts.

    Drafts follow the newest token only.
    """
    start, tokens = request.num_computed, request.tokens
    end = start + count
    drafts = request.draft.tokens[:num_drafts] if num_drafts else ()
    return Row(
        request_id=request.id,
        start=start,
        tokens=(*tokens[start:end], *drafts),
        blocks=request.blocks,
        is_prefill=start < request.num_prompt_tokens or count > 1,
        sampling=sampling_of(request) if end == len(tokens) and request.score_start is None else None,
        targets=() if request.score_start is None else _targets(request, start, end),
        watch=request.watch,
        slot=request.slot,
        num_drafts=num_drafts,
        draft_probs=request.draft.probs if num_drafts else None,
    )


def sampling_of(request: Request) -> RowSampling:
    """How its next token is chosen: the same object at every step, unless a penalty or a ban depends on the newest."""
    if request.sampling is not None:
        return request.sampling
    params = request.params
    if params.needs_history or params.min_tokens:
        left = max(0, params.min_tokens - request.num_output_tokens)
        return _new_sampling(request, tuple(request.tokens) if params.needs_history else (), left)
    request.sampling = _new_sampling(request, (), 0)
    return request.sampling


def _new_sampling(request: Request, history: tuple[int, ...], bans_left: int) -> RowSampling:
    banned = request.end_token_ids if bans_left else ()
    return RowSampling(
        request.params, request.seed, request.sample_index, request.num_prompt_tokens, history, banned, bans_left
    )


def _targets(request: Request, start: int, end: int) -> tuple[int, ...]:
    """For a scoring request: the token after each position, -1 where it is not asked for."""
    assert request.score_start is not None
    following = [*request.tokens[start + 1 : end + 1], -1][: end - start]
    return tuple(token if start + 1 + offset >= request.score_start else -1 for offset, token in enumerate(following))

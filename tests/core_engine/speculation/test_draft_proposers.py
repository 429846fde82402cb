"""The proposers against the networks they were trained as: same ids however a sequence was cut, accepted or drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.plan import GREEDY, RowSampling
from core_engine.sampling_params import SamplingParams
from core_engine.speculation.artefact import rounded_rows
from core_engine.speculation.proposer import Ask, Proposer
from core_engine.speculation.training.networks import Eagle
from tests.core_engine.speculation.tiny_drafts import KINDS, Made, row

KERNELS = ("torch", "compiled")
K = 4


def sequence(length: int, seed: int = 0) -> list[int]:
    return torch.randint(256, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def ask(tokens: list[int], k: int = K, sampling: RowSampling = GREEDY, name: str = "a") -> Ask:
    return Ask(name, 0, tokens, k, sampling)


def show(proposer: Proposer, made: Made, tokens: list[int], start: int = 0, name: str = "a") -> None:
    """Let the proposer see the features of `tokens` from `start` on."""
    proposer.observe([row(tuple(tokens[start:]), start, name)], made.hidden(tokens)[start:])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_drafts_are_the_networks_own(kind: str, kernels: str, tiny: tuple[Path, Any]) -> None:
    made = Made(kind, tiny[0], kernels)
    proposer, tokens = made.proposer(), sequence(40)
    show(proposer, made, tokens[:-1])
    (draft,) = proposer.propose([ask(tokens)])
    assert list(draft.tokens) == made.reference(tokens)
    assert draft.probs is None
    assert set(draft.tokens) <= set(made.ids.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_requests_in_a_batch_are_drafted_as_if_alone(kind: str, tiny: tuple[Path, Any]) -> None:
    made = Made(kind, tiny[0])
    proposer = made.proposer()
    texts = {name: sequence(length, seed) for seed, (name, length) in enumerate({"a": 9, "b": 33, "c": 17}.items())}
    for name, tokens in texts.items():
        show(proposer, made, tokens[:-1], name=name)
    wanted = {"a": 1, "b": 4, "c": 2}
    drafts = proposer.propose([ask(tokens, wanted[name], name=name) for name, tokens in texts.items()])
    for (name, tokens), draft in zip(texts.items(), drafts, strict=True):
        assert list(draft.tokens) == made.reference(tokens, wanted[name])


@pytest.mark.parametrize("accepted", range(K + 1))
@pytest.mark.parametrize("kind", KINDS)
def test_after_any_number_of_accepted_drafts_the_next_equals_a_fresh_one(
    kind: str, accepted: int, tiny: tuple[Path, Any]
) -> None:
    """Fault 23 with all accepted; a rollback with fewer."""
    made = Made(kind, tiny[0])
    proposer, tokens = made.proposer(), sequence(21)
    show(proposer, made, tokens[:-1])
    (draft,) = proposer.propose([ask(tokens)])
    step = [*tokens, *draft.tokens]
    show(proposer, made, step, len(tokens) - 1)  # the verifying pass computes the drafts too
    bonus = next(i for i in range(256) if accepted == K or i != draft.tokens[accepted])
    after = [*tokens, *draft.tokens[:accepted], bonus]
    (again,) = proposer.propose([ask(after)])
    fresh = made.proposer()
    show(fresh, made, after[:-1])
    assert again.tokens == fresh.propose([ask(after)])[0].tokens
    assert list(again.tokens) == made.reference(after)


@pytest.mark.parametrize("kind", ("draft", "eagle"))
def test_after_full_acceptance_the_next_logits_equal_those_of_a_fresh_prefill(
    kind: str, tiny: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 23, on the logits themselves."""
    made = Made(kind, tiny[0])
    seen: list[torch.Tensor] = []
    module = {"draft": "draft_model", "eagle": "eagle"}[kind]
    import importlib

    where = importlib.import_module(f"core_engine.speculation.{module}")
    plain = where.choose

    def spy(logits: torch.Tensor, choices: Any) -> Any:
        seen.append(logits.clone())
        return plain(logits, choices)

    monkeypatch.setattr(where, "choose", spy)
    proposer, tokens = made.proposer(), sequence(21)
    show(proposer, made, tokens[:-1])
    (draft,) = proposer.propose([ask(tokens)])
    step = [*tokens, *draft.tokens]
    show(proposer, made, step, len(tokens) - 1)
    seen.clear()
    proposer.propose([ask([*step, 7], 1)])
    fresh = made.proposer()
    show(fresh, made, step)
    fresh.propose([ask([*step, 7], 1)])
    torch.testing.assert_close(seen[0], seen[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", (1, 7, 16, 300))
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_a_prompt_make_no_difference(kind: str, size: int, tiny: tuple[Path, Any]) -> None:
    made = Made(kind, tiny[0])
    proposer, tokens = made.proposer(), sequence(60)
    for start in range(0, len(tokens) - 1, size):
        show(proposer, made, tokens[:-1][: start + size], start)
    assert list(proposer.propose([ask(tokens)])[0].tokens) == made.reference(tokens)


def test_a_long_prompt_is_computed_piece_by_piece(tiny: tuple[Path, Any]) -> None:
    made = Made("draft", tiny[0])
    tokens = sequence(400)
    assert list(made.proposer().propose([ask(tokens)])[0].tokens) == made.reference(tokens)


def test_eagle_begins_after_a_prefix_that_it_never_saw(tiny: tuple[Path, Any]) -> None:
    made = Made("eagle", tiny[0])
    proposer, tokens = made.proposer(), sequence(40)
    show(proposer, made, tokens[:-1], start=16)
    (draft,) = proposer.propose([ask(tokens, 1)])
    network, features = made.network, made.hidden(tokens)[16:-1]
    assert isinstance(network, Eagle)
    with torch.no_grad():
        (out,) = network(made.target.embedding[torch.tensor(tokens[17:])][None], features[None])
        best = (rounded_rows(made.target.head[made.ids]).dequantized() @ out[0, -1]).argmax()
    assert draft.tokens == (int(made.ids[best]),)


def test_eagle_goes_on_after_a_gap_and_drafts_nothing_without_the_newest_feature(tiny: tuple[Path, Any]) -> None:
    made = Made("eagle", tiny[0])
    proposer, tokens = made.proposer(), sequence(40)
    assert proposer.propose([ask(tokens)])[0].tokens == ()
    show(proposer, made, tokens[:10])
    assert proposer.propose([ask(tokens)])[0].tokens == ()
    show(proposer, made, tokens[:-1], start=20)
    assert len(proposer.propose([ask(tokens)])[0].tokens) == K


@pytest.mark.parametrize("kind", KINDS)
def test_asked_twice_about_the_same_tokens_it_says_the_same(kind: str, tiny: tuple[Path, Any]) -> None:
    made = Made(kind, tiny[0])
    proposer, tokens = made.proposer(), sequence(30)
    show(proposer, made, tokens[:-1])
    assert proposer.propose([ask(tokens)])[0].tokens == proposer.propose([ask(tokens)])[0].tokens


@pytest.mark.parametrize("kind", KINDS)
def test_a_released_request_may_come_back_as_another_text(kind: str, tiny: tuple[Path, Any]) -> None:
    made = Made(kind, tiny[0])
    proposer = made.proposer()
    show(proposer, made, sequence(30, 1)[:-1])
    proposer.propose([ask(sequence(30, 1))])
    held = proposer.cache_bytes()
    proposer.release("a")
    proposer.release("unknown")
    tokens = sequence(25, 2)
    show(proposer, made, tokens[:-1])
    assert list(proposer.propose([ask(tokens)])[0].tokens) == made.reference(tokens)
    assert proposer.cache_bytes() <= held


SAMPLINGS = {
    "temperature": SamplingParams(temperature=1.3),
    "top-k": SamplingParams(temperature=1.0, top_k=5),
    "top-p": SamplingParams(temperature=1.0, top_p=0.7),
    "min-p": SamplingParams(temperature=1.0, min_p=0.05),
    "repetition": SamplingParams(temperature=1.0, repetition_penalty=1.5),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [*[("draft", name) for name in SAMPLINGS], *[(kind, "temperature") for kind in KINDS if kind != "draft"]],
)
def test_sampled_drafts_are_drawn_from_the_distribution_that_comes_with_them(
    kind: str, name: str, tiny: tuple[Path, Any]
) -> None:
    """Fault 20: frequencies over many seeds against the returned probabilities, chi-square."""
    from scipy.stats import chisquare

    made = Made(kind, tiny[0])
    proposer, tokens = made.proposer(), sequence(20)
    show(proposer, made, tokens[:-1])
    params = SAMPLINGS[name]
    history = tuple(tokens) if params.needs_history else ()
    draws = 600
    counts = torch.zeros(256, dtype=torch.float64)
    probs = None
    for seed in range(draws):
        sampling = RowSampling(params, seed, num_prompt_tokens=len(tokens), history=history)
        (draft,) = proposer.propose([ask(tokens, 1, sampling)])
        assert draft.probs is not None
        probs = draft.probs[0]
        counts[draft.tokens[0]] += 1
    assert probs is not None
    assert float(probs.sum()) == pytest.approx(1)
    assert counts[probs == 0].sum() == 0
    common = probs * draws >= 5
    observed, expected = counts[common].tolist(), (probs[common] * draws).tolist()
    if not common.all():
        rest = draws - sum(expected)
        observed, expected = [*observed, draws - sum(observed)], [*expected, rest]
    if len(observed) > 1 and expected[-1] > 1:
        assert chisquare(observed, expected, sum_check=False).pvalue > 1e-4


def test_a_greedy_penalty_reaches_every_draft(tiny: tuple[Path, Any]) -> None:
    made = Made("draft", tiny[0])
    tokens = sequence(20)
    params = SamplingParams(repetition_penalty=100.0)
    sampling = RowSampling(params, 0, num_prompt_tokens=len(tokens), history=tuple(tokens))
    (draft,) = made.proposer().propose([ask(tokens, 6, sampling)])
    assert draft.probs is None
    assert len({*draft.tokens}) == 6 and not set(draft.tokens) & set(tokens)

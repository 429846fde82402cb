"""The engine as a model of EleutherAI's lm-evaluation-harness (extra `eval`), registered as "trilemma".

    python -m experiments.quality.lm_harness --model trilemma --model_args weights=w8a8,dtype=fp32 --tasks TASK

takes every option of the harness's own command line; model_args are variables of the engine. Importing this module
needs the package lm_eval; nothing else of the project imports it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from core_engine.request import SamplingParams
from experiments.quality.spec import scoring_config
from experiments.rig import Rig

DEFAULT_ANSWER_TOKENS = 256
# Options that the harness hands to every model; an engine has its own words for them.
NOT_OURS = ("batch_size", "max_batch_size", "device")


@register_model("trilemma")
class TrilemmaLM(LM):
    """Log-likelihoods and answers of one engine; requests of a call run together under continuous batching."""

    def __init__(self, **settings: Any) -> None:
        """settings: variables of the engine, by name. InputError and CannotRunError as the engine raises them."""
        super().__init__()
        self.config = scoring_config({name: value for name, value in settings.items() if name not in NOT_OURS})
        self.engine = Rig().engine(self.config)
        self._most_tokens = self.engine.derived()["max_position"]
        capacity = self.engine.pool.num_blocks * self.engine.pool.block_size
        self._most_tokens = min(self._most_tokens, capacity)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log-probability of the continuation, whether it is the greedy one) of each (context, continuation)."""
        pairs = [self._split(*request.args) for request in requests]
        # Neighbours with one context share its KV: the harness sends the choices of a question one after another.
        return list(self._score(pairs))

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of each whole text, every token once, in windows as long as the model takes."""
        found = []
        for request in requests:
            ids = self.engine.tokenizer.encode(request.args[0])
            windows = get_rolling_token_windows(
                token_list=ids, prefix_token=self._prefix(), max_seq_len=self._most_tokens - 1, context_len=1
            )
            pairs = [(list(context), list(text)) for context, text in map(make_disjoint_window, windows)]
            found.append(sum(logprob for logprob, _ in self._score(pairs)))
        return found

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """The answer to each (context, options): until, max_gen_toks, do_sample, temperature, top_p, top_k."""
        return [self._answer(*request.args) for request in requests]

    def _answer(self, context: str, options: dict[str, Any]) -> str:
        until = options.get("until") or ()
        limit = min(int(options.get("max_gen_toks", DEFAULT_ANSWER_TOKENS)), self._most_tokens - 1)
        sampled = {name: options[name] for name in ("temperature", "top_p", "top_k") if name in options}
        params = SamplingParams(
            max_tokens=limit,
            stop=(until,) if isinstance(until, str) else tuple(until),
            **(sampled if options.get("do_sample") else {}),
        )
        ids = self.engine.tokenizer.encode(context)[-(self._most_tokens - limit) :] or [self._prefix()]
        return str(self.engine.generate([ids], params)[0].text)

    def _split(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of both; blanks at the context's end belong to the continuation, as in the harness's own models."""
        blanks = len(context) - len(context.rstrip())
        if blanks:
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        encode = self.engine.tokenizer.encode
        if not context:
            return [self._prefix()], encode(continuation)
        before = encode(context)
        return before, encode(context + continuation)[len(before) :]

    def _prefix(self) -> int:
        """What stands before a text without context: the end-of-text token, or the first id where there is none."""
        ends = self.engine.tokenizer.eos_token_ids
        return int(ends[0]) if ends else 0

    def _score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[tuple[float, bool]]:
        """Of each (context ids, continuation ids), in order; a context that is too long loses its beginning."""
        waiting: deque[tuple[str, _Greedy]] = deque()
        for context, continuation in pairs:
            ids = [*context, *continuation][-self._most_tokens :]
            greedy = _Greedy(ids)
            waiting.append((self.engine.add_score(ids, max(1, len(ids) - len(continuation)), greedy.see), greedy))
            if len(waiting) >= 4 * self.config.max_num_seqs:
                yield self._wait(*waiting.popleft())
        while waiting:
            yield self._wait(*waiting.popleft())

    def _wait(self, request_id: str, greedy: _Greedy) -> tuple[float, bool]:
        while (scores := self.engine.take_scores(request_id)) is None:
            self.engine.step()
        return sum(scores), greedy.all


class _Greedy:
    """Whether each scored token is the likeliest at its place."""

    def __init__(self, ids: list[int]) -> None:
        self._ids, self.all = ids, True

    def see(self, place: int, rows: Any) -> None:
        """Look at the distributions of the tokens from `place` on."""
        self.all = self.all and rows.argmax(1).tolist() == self._ids[place : place + len(rows)]


def main() -> None:
    """The harness's own command line, which knows the model by now."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()

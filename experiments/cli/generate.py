"""`trilemma generate`: one prompt through the engine, in this process."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from experiments.cli.numbers import number, whole
from experiments.cli.options import Json, Set, settings
from experiments.cli.output import note, print_json
from ledger.errors import InputError


def generate(
    prompt: Annotated[str, typer.Option("--prompt", metavar="TEXT", help="The prompt; raw unless --chat.")],
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt through the model's chat template.")] = False,
    max_tokens: Annotated[str, typer.Option("--max-tokens", metavar="N")] = "128",
    temperature: Annotated[str, typer.Option("--temperature", metavar="T", help="0 is greedy.")] = "0",
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="Ends the text; repeatable.")] = None,
    seed: Annotated[str | None, typer.Option("--seed", metavar="N")] = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Generate text from one prompt."""
    from core_engine.config import EngineConfig

    if not prompt:
        raise InputError("--prompt", prompt, "a text of at least one character")
    config = EngineConfig.from_settings(settings(sets))
    from core_engine.request import SamplingParams

    params = SamplingParams(
        max_tokens=whole("--max-tokens", max_tokens) or 0,
        temperature=number("--temperature", temperature),
        stop=tuple(stop or ()),
        seed=whole("--seed", seed),
    )
    stream = sys.stdout.isatty() and not as_json
    result = _generate(prompt, chat, config, params, stream=stream)
    if as_json:
        print_json(result)
    elif not stream:
        print(result["text"])


def _generate(prompt: str, chat: bool, config: Any, params: Any, *, stream: bool) -> dict[str, Any]:
    """Run one request and return the `generate` JSON; the text goes to stdout as it comes, or at the end."""
    from experiments.rig import Rig

    started = time.perf_counter()
    rig = Rig(note)
    loaded = rig.loaded(config)
    engine = rig.engine(config)
    loaded_s = time.perf_counter() - started
    tokenizer = loaded.tokenizer
    ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}]) if chat else tokenizer.encode(prompt)
    request_id = engine.add(ids, params)
    engine.expect_more_arrivals(False)
    while engine.has_unfinished():
        for output in engine.step():
            if stream:
                sys.stdout.write(output.text)
                sys.stdout.flush()
    completion = engine.completion(request_id)
    if stream:
        sys.stdout.write("\n")
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": len(completion.token_ids),
        "timings": {**_timings(engine.record()), "load_s": loaded_s},
        "config": config.settings(),
        "provenance": "measured",
    }


def _timings(record: dict[str, Any]) -> dict[str, float | None]:
    """TTFT, time per output token, end to end, and decode rate of the one request, in s and tokens/s."""
    from experiments.metrics import compute_metrics

    metrics = compute_metrics(record)
    tpot = metrics["tpot_s"]["mean"]
    return {
        "ttft_s": metrics["ttft_s"]["mean"],
        "tpot_s": tpot,
        "e2e_s": metrics["e2e_s"]["mean"],
        "output_tokens_per_s": metrics["output_tokens_per_s"],
    }

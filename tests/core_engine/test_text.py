"""Text deltas and stop texts against the naive reference: decode everything, cut at the first stop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.model.tokenizer import Tokenizer
from core_engine.sampling_params import SamplingParams
from core_engine.sessions import detokenizer
from core_engine.text import LONGEST_HELD_RUN, WINDOW, StopMatcher, TextStream, WindowDetokenizer
from tests.core_engine import tokenizers_made

# Byte-level twice: by the tokens' bytes, and as if only its decode were known.
BYTE_LEVEL = ("byte_level", "byte_level_window")
KINDS = (*BYTE_LEVEL, "byte_fallback", "metaspace", "word_pieces")
TEXTS = [
    "plain words",
    "  two spaces  in front ",
    "emoji 👩‍👩‍👧 family 🏳️‍🌈",
    "中文分词测试",
    "mixed é 你好 🙂 end",
    "🙂",
    "a real � inside and one at the end �",
    "नमस्ते दुनिया, यह एक लंबा पाठ है",
    "",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    directory = tmp_path_factory.mktemp("tokenizers")
    made = {kind: Tokenizer(tokenizers_made.save(_build(kind), directory / kind), ()) for kind in KINDS}
    made["byte_level_window"].token_bytes = None
    return made


def _build(kind: str) -> Any:
    return getattr(tokenizers_made, kind.removesuffix("_window"))()


def streamed(
    tokenizer: Tokenizer, ids: Sequence[int], stop: tuple[str, ...] = (), **options: Any
) -> tuple[list[str], int]:
    """The deltas, and how many tokens were taken before a stop text or the end."""
    stream = TextStream(detokenizer(tokenizer), stop, **options)
    deltas = []
    for place, token in enumerate(ids):
        stream.push(token)
        deltas.append(stream.take(final=stream.stopped or place == len(ids) - 1))
        if stream.stopped:
            break
    assert "".join(deltas) == stream.text
    return deltas, len(deltas)


@pytest.mark.parametrize("kind", [*BYTE_LEVEL, "byte_fallback", "metaspace"])
@pytest.mark.parametrize("text", TEXTS)
def test_joined_deltas_equal_decode_of_all_ids(made: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = made[kind]
    ids = tokenizer.encode(text)
    deltas, _ = streamed(tokenizer, ids)
    assert "".join(deltas) == tokenizer.decode(ids)
    assert tokenizer.decode(ids).strip() == text.strip()
    assert "".join(deltas).count("�") == text.count("�")


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.sampled_from([*BYTE_LEVEL, "byte_fallback", "metaspace"]))
def test_joined_deltas_of_any_text_equal_decode_of_all_ids(made: dict[str, Tokenizer], text: str, kind: str) -> None:
    ids = made[kind].encode(text)
    assert "".join(streamed(made[kind], ids)[0]) == made[kind].decode(ids)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(KINDS))
def test_joined_deltas_of_any_tokens_equal_decode_of_all_ids(
    made: dict[str, Tokenizer], data: st.DataObject, kind: str
) -> None:
    """What a random model emits: broken characters, special tokens anywhere, ids the tokenizer does not have."""
    tokenizer = made[kind]
    common = st.sampled_from([*tokenizer.byte_tokens][128:] or [0, 1, 2])
    token = st.one_of(st.integers(0, tokenizer.vocab_size + 2), common, st.integers(0, 2))
    ids = data.draw(st.lists(token, max_size=3 * WINDOW))
    longest = run = 0
    for one in ids:
        special = not tokenizer.decode([one, one])
        run = run + (one in tokenizer.byte_tokens) if special or one in tokenizer.byte_tokens else 0
        longest = max(longest, run)
    if longest < LONGEST_HELD_RUN:
        assert "".join(streamed(tokenizer, ids)[0]) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent_is_always_the_beginning_of_the_text_so_far(made: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = made[kind]
    ids = tokenizer.encode("a word. ab é 你好🙂 b a ab " * 3)
    stream = TextStream(detokenizer(tokenizer), ())
    sent = ""
    for count, token in enumerate(ids, 1):
        stream.push(token)
        sent += stream.take(final=False)
        behind = tokenizer.decode(ids[:count])
        assert behind.startswith(sent)
        assert len(behind) - len(sent) <= 7 and behind[len(sent) :].strip("�你好🙂") == ""  # parts of characters only
    assert sent + stream.take(final=True) == tokenizer.decode(ids)


def test_an_unfinished_character_at_the_end_is_shown_as_decode_shows_it(made: dict[str, Tokenizer]) -> None:
    for kind in (*BYTE_LEVEL, "byte_fallback"):
        for cut in (1, 2, 3):
            ids = made[kind].encode("ab🙂🙂")[:-cut]
            assert "".join(streamed(made[kind], ids)[0]) == made[kind].decode(ids)


@pytest.mark.parametrize(("kind", "deltas"), [("byte_level", ["�", "y", "z"]), ("byte_level_window", ["", "�y", "z"])])
def test_a_real_replacement_character_does_not_stall_the_stream(
    made: dict[str, Tokenizer], kind: str, deltas: list[str]
) -> None:
    tokenizer = made[kind]
    ids = tokenizer.encode("�" * 50)
    given_out, _ = streamed(tokenizer, ids)
    waiting = [3 + 3 * i - len("".join(given_out[: 3 * (i + 1)])) * 3 for i in range(49)]
    assert all(tokens <= 3 for tokens in waiting)
    ids = tokenizer.encode("x�yz")
    assert streamed(tokenizer, ids)[0][-3:] == deltas


def test_a_long_run_of_byte_tokens_flows_and_a_short_one_waits_for_its_end(made: dict[str, Tokenizer]) -> None:
    tokenizer = made["byte_fallback"]
    deltas, _ = streamed(tokenizer, tokenizer.encode("ab" + "你" * 40 + "c")[2:])  # from "b" on
    first = -(-LONGEST_HELD_RUN // 3)  # the first characters come together, then each with its last byte
    assert deltas[: 3 * first + 1] == ["b", *[""] * (3 * first - 1), "你" * first]
    assert deltas[3 * first + 1 :] == ["", "", "你"] * (40 - first) + ["c"]
    deltas, _ = streamed(tokenizer, tokenizer.encode("b你你c")[-8:])
    assert deltas == ["b", "", "", "", "", "", "", "你你c"]


def test_a_run_that_can_not_become_text_is_shown_at_once(made: dict[str, Tokenizer]) -> None:
    tokenizer = made["byte_fallback"]
    run = [3 + byte for byte in (0xE4, 0xBD, 0xA0, 0xFF, 0x41, 0xE4)]
    deltas, _ = streamed(tokenizer, [*run, tokenizer.encode("b")[-1]])
    assert deltas == ["", "", "", "����", "�", "�", "b"]


def test_a_special_token_inside_the_text_leaves_spaces_and_characters_whole(made: dict[str, Tokenizer]) -> None:
    tokenizer = made["byte_fallback"]
    space_b = tokenizer.encode("a b")[2:]
    nothing = [2] * (2 * WINDOW)
    for ids in ([*nothing, *space_b, 2, *space_b], [*space_b, *nothing, *space_b], [3 + 0xE4, 2, 3 + 0xBD, 3 + 0xA0]):
        assert "".join(streamed(tokenizer, ids)[0]) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["byte_level_window", "byte_fallback"])
def test_the_work_of_a_token_does_not_grow_with_the_text(made: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = made[kind]
    decoded = [0]

    def counting(ids: Sequence[int]) -> str:
        decoded[0] += len(ids)
        return tokenizer.decode(ids)

    crossing = tokenizer.encode("a b 你好🙂" * 300) + [tokenizer.encode("🙂")[-1], 2] * 500
    window = WindowDetokenizer(counting, tokenizer.byte_tokens)
    for token in crossing:
        before = decoded[0]
        window.push(token)
        assert decoded[0] - before <= 2 * WINDOW + LONGEST_HELD_RUN


# -- stop texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*BYTE_LEVEL, "byte_fallback"])
def test_a_stop_text_that_spans_tokens_is_never_sent(made: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = made[kind]
    deltas, count = streamed(tokenizer, tokenizer.encode("go STO on STOP after"), ("STOP",))
    assert "".join(deltas) == "go STO on "
    assert count == len(tokenizer.encode("go STO on STOP"))


def test_only_the_beginning_of_a_possible_stop_is_held_back(made: dict[str, Tokenizer]) -> None:
    deltas, _ = streamed(made["byte_level"], made["byte_level"].encode("xSTyS"), ("STOP", "TOO"))
    assert deltas == ["x", "", "", "STy", "S"]


@pytest.mark.parametrize(
    ("pieces", "stop", "text"),
    [
        (["one ", "two"], ("wo", "two"), "one "),  # completed by one token: the earlier start
        (["t", "w", "o"], ("wo", "two"), ""),
        (["a", "b", "c", "d"], ("abcd", "bc"), "a"),  # the first to be complete ends it
        (["abcd"], ("abcd", "bc"), ""),
        (["aa", "ab"], ("aab",), "a"),  # the match begins inside what was held back
        (["x\n", "\ny"], ("\n\n",), "x"),
    ],
)
def test_of_several_stops_the_first_complete_one_wins(pieces: list[str], stop: tuple[str, ...], text: str) -> None:
    stream = TextStream(WindowDetokenizer(lambda ids: "".join(pieces[i] for i in ids)), stop)
    for token in range(len(pieces)):
        stream.push(token)
        stream.take(final=stream.stopped)
        if stream.stopped:
            break
    assert stream.stopped and stream.text == text


def free_of_each_other(stops: list[str]) -> bool:
    """No stop lies inside another: then the first in the text and the first complete one are the same."""
    return not any(a is not b and a in b for a in stops for b in stops)


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="ab é你🙂\n�", max_size=50),
    st.lists(st.text(alphabet="ab é你🙂\n", min_size=1, max_size=5), max_size=3, unique=True).filter(
        free_of_each_other
    ),
    st.sampled_from([*BYTE_LEVEL, "byte_fallback"]),
)
def test_the_text_is_decode_of_all_cut_at_the_first_stop(
    made: dict[str, Tokenizer], text: str, stops: list[str], kind: str
) -> None:
    tokenizer = made[kind]
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids)
    found = [whole.find(stop) for stop in stops if stop in whole]
    deltas, count = streamed(tokenizer, ids, tuple(stops))
    assert "".join(deltas) == (whole[: min(found)] if found else whole)
    if found:  # no token is taken after the one that completes the stop
        assert not any(stop in tokenizer.decode(ids[: count - 1]) for stop in stops)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=12),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_stops_inside_each_other_follow_the_tokens(pieces: list[str], stops: list[str]) -> None:
    expected = "".join(pieces)
    for count in range(1, len(pieces) + 1):
        found = [at for at in ("".join(pieces[:count]).find(stop) for stop in stops) if at >= 0]
        if found:
            expected = expected[: min(found)]
            break
    stream = TextStream(WindowDetokenizer(lambda ids: "".join(pieces[i] for i in ids)), tuple(stops))
    sent = ""
    for token in range(len(pieces)):
        stream.push(token)
        sent += stream.take(final=stream.stopped or token == len(pieces) - 1)
        assert expected.startswith(sent)
        if stream.stopped:
            break
    assert sent == expected


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab", min_size=1, max_size=6), st.text(alphabet="ab", max_size=30))
def test_a_matcher_holds_back_the_longest_end_that_begins_the_stop(stop: str, text: str) -> None:
    matcher = StopMatcher(stop)
    end = matcher.feed(text, active=True)
    assert end == (text.index(stop) + len(stop) if stop in text else None)
    if end is None:
        assert matcher.matched == max(size for size in range(len(stop)) if text.endswith(stop[:size]))


@pytest.mark.parametrize(
    ("min_tokens", "text"),
    [(0, ""), (1, ""), (2, "xx."), (4, "xx."), (5, "xx.xx.yy"), (8, "xx.xx.yy")],
)
def test_a_stop_within_min_tokens_stays_in_the_text(min_tokens: int, text: str) -> None:
    pieces = ["x", "x", ".", "x", "x", ".", "y", "y"]
    stream = TextStream(WindowDetokenizer(lambda ids: "".join(pieces[i] for i in ids)), ("xx",), min_tokens=min_tokens)
    sent = ""
    for token in range(len(pieces)):
        stream.push(token)
        sent += stream.take(final=stream.stopped or token == len(pieces) - 1)
        if stream.stopped:
            break
    assert sent == text


def test_a_stop_begun_within_min_tokens_and_complete_after_ends_the_text() -> None:
    stream = TextStream(WindowDetokenizer(lambda ids: "".join("aSTOPz"[i] for i in ids)), ("STOP",), min_tokens=3)
    for token in range(5):
        stream.push(token)
        stream.take(final=stream.stopped)
    assert stream.stopped and stream.text == "a"


# -- in the engine ---------------------------------------------------------------------------------------------------


def test_stop_reasons(tiny: tuple[Path, Any], tiny_loaded: LoadedModel) -> None:
    engine = Engine(EngineConfig.from_settings({}), tiny_loaded)
    free = engine.generate([list(range(3, 20))], SamplingParams(max_tokens=30, ignore_eos=True))[0]
    assert (free.finish_reason, len(free.token_ids)) == ("length", 30)
    stop = tiny_loaded.tokenizer.decode(free.token_ids[4:6])
    stopped = engine.generate([list(range(3, 20))], SamplingParams(max_tokens=30, stop=(stop,), ignore_eos=True))[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == free.text[: free.text.index(stop)]


def test_every_end_token_of_the_model_ends_an_answer(tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = list(range(3, 20))
    free = Engine(EngineConfig.from_settings({}), tiny_loaded).generate(
        [prompt], SamplingParams(max_tokens=8, ignore_eos=True)
    )
    ids = free[0].token_ids
    place = next(i for i, token in enumerate(ids) if token not in ids[:i] and i > 1)
    monkeypatch.setattr(tiny_loaded.tokenizer, "eos_token_ids", (0, ids[place], 255))
    ended = Engine(EngineConfig.from_settings({}), tiny_loaded).generate([prompt], SamplingParams(max_tokens=8))[0]
    assert ended.token_ids == ids[: place + 1] and ended.finish_reason == "stop"
    assert ended.text == tiny_loaded.tokenizer.decode(ids[:place])

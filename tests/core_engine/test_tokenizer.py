"""Tokenizer files: what is read, what is refused, chat templates, and beginning-of-sequence tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core_engine.model.loader import read_config
from core_engine.model.spec import DecoderSpec
from core_engine.model.tokenizer import Tokenizer
from ledger.errors import CannotRunError, InputError
from tests.core_engine import tokenizers_made

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]{{ message['content'] | trim }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def write(directory: Path, template: Any = TEMPLATE, **settings: Any) -> Path:
    """A byte-fallback tokenizer with a template."""
    tokenizers_made.save(tokenizers_made.byte_fallback(), directory)
    content = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template, **settings}
    (directory / "tokenizer_config.json").write_text(json.dumps(content))
    return directory


def tokens_of(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer._tokenizer.id_to_token(token) for token in ids]


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "be brief"}]])
def test_chat_equals_transformers(tmp_path: Path, system: list[dict[str, str]]) -> None:
    from transformers import PreTrainedTokenizerFast

    write(tmp_path)
    reference = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )
    messages = [*system, {"role": "user", "content": " hello 你 "}]
    expected = reference.apply_chat_template(messages, add_generation_prompt=True)
    ours = Tokenizer(tmp_path, (2,)).apply_chat_template(messages)
    assert ours == list(expected["input_ids"])
    assert ours.count(1) == 1  # the template's own <s>, and no second one


def test_a_raw_prompt_gets_one_beginning_token_even_when_it_brings_its_own(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write(tmp_path), ())
    assert tokens_of(tokenizer, tokenizer.encode("ab"))[:2] == ["<s>", "▁a"]
    assert tokenizer.encode("<s>ab").count(1) == 1
    assert tokenizer.decode(tokenizer.encode("<s>ab")) == "ab"


@pytest.mark.parametrize(
    ("template", "error", "words"),
    [
        ("{{ raise_exception('System role not supported') }}", InputError, "System role not supported"),
        ("{% for x in %}", CannotRunError, "TemplateSyntaxError"),
        ("{{ messages[0].content.missing.field }}", CannotRunError, "UndefinedError"),
        ("{{ messages[0]['content'] + 1 }}", CannotRunError, "TypeError"),
        ("{{ ''.__class__.__mro__ }}", CannotRunError, "SecurityError"),
        ("{% set a = messages.append(1) %}", CannotRunError, "SecurityError"),
        (None, CannotRunError, "no chat template"),
    ],
)
def test_a_template_that_fails_is_one_clear_line(
    tmp_path: Path, template: str | None, error: type[Exception], words: str
) -> None:
    tokenizer = Tokenizer(write(tmp_path, template), ())
    with pytest.raises(error, match=words) as raised:
        tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])
    assert "\n" not in str(raised.value)


def test_templates_find_what_hugging_face_offers_them(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{% if tools %}tools{% endif %}{{ pad_token is defined }}"
    )
    tokenizer = Tokenizer(write(tmp_path, template), ())
    messages = [{"role": "user", "content": "a<b'é"}, {"role": "user", "content": "x"}]
    text = tokenizer.decode(tokenizer.apply_chat_template(messages))
    assert text == '{"role": "user", "content": "a<b\'é"}4False'


def test_of_several_templates_the_default_is_taken_and_a_file_of_its_own_before_all(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "chat"}]
    directory = write(tmp_path, named)
    say = [{"role": "user", "content": "hi"}]
    assert (tokenizer := Tokenizer(directory, ())).decode(tokenizer.apply_chat_template(say)) == "chat"
    (directory / "chat_template.jinja").write_text("own")
    assert (tokenizer := Tokenizer(directory, ())).decode(tokenizer.apply_chat_template(say)) == "own"


def test_a_missing_tokenizer_json_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path, ())
    (tmp_path / "tokenizer.model").write_bytes(b"sentencepiece")
    with pytest.raises(CannotRunError, match=r"only tokenizer\.model; .*save_pretrained"):
        Tokenizer(tmp_path, ())


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_broken_file_is_refused_by_its_path(tmp_path: Path, name: str, content: str) -> None:
    (write(tmp_path) / name).write_text(content)
    with pytest.raises(InputError, match=name):
        Tokenizer(tmp_path, ())


def test_no_prompt_is_cut_or_padded_by_settings_in_the_file(tmp_path: Path) -> None:
    made = tokenizers_made.byte_fallback()
    made.enable_truncation(4)
    made.enable_padding(length=50)
    tokenizer = Tokenizer(tokenizers_made.save(made, tmp_path), ())
    assert tokenizer.decode(tokenizer.encode("a long enough text")) == "a long enough text"


def test_text_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="valid Unicode"):
        Tokenizer(write(tmp_path), ()).encode("a\udce4b")


def test_byte_tokens_are_those_the_decoder_turns_into_bytes(tmp_path: Path) -> None:
    from tokenizers import decoders

    assert Tokenizer(write(tmp_path), ()).byte_tokens == {3 + byte: byte for byte in range(256)}
    plain = tokenizers_made.byte_fallback()
    plain.decoder = decoders.Fuse()
    assert Tokenizer(tokenizers_made.save(plain, tmp_path / "plain"), ()).byte_tokens == {}
    level = Tokenizer(tokenizers_made.save(tokenizers_made.byte_level(), tmp_path / "level"), ())
    assert level.byte_tokens == {}


def test_end_tokens_of_the_generation_config_come_before_the_configs(tiny: tuple[Path, Any], tmp_path: Path) -> None:
    config = json.loads((tiny[0] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert DecoderSpec.from_config(read_config(tmp_path)).eos_token_ids == (0,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 9]}))
    assert DecoderSpec.from_config(read_config(tmp_path)).eos_token_ids == (5, 9)

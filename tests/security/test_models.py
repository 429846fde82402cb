"""A model of somebody else is data: weights in safetensors or GGUF, a template in a sandbox, no code of its own."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.model.chat_template import render
from core_engine.model.loader import open_model
from core_engine.speculation import artefact
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import make_llama

UNSAFE = ("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl", "consolidated.00.pth", "model.npz")


class Trap:
    """A pickle that leaves a mark when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self._mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that is there once something was executed."""
    path = tmp_path / "executed"
    pickle.loads(pickle.dumps(Trap(path)))
    assert path.exists()  # the trap works
    path.unlink()
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole tiny model."""
    folder = tmp_path / "model"
    folder.mkdir()
    make_llama(folder)
    return folder


def opened(path: Path) -> Any:
    found = open_model(EngineConfig.from_settings({"model": str(path), "dtype": "fp32", "device": "cpu"}))
    return [found.source, found.spec]


def test_weights_in_a_pickle_are_never_read(model: Path, mark: Path) -> None:
    (model / "model.safetensors").unlink()
    for name in UNSAFE:
        (model / name).write_bytes(pickle.dumps(Trap(mark)))
        with pytest.raises((InputError, CannotRunError)) as refused:
            opened(model)
        assert "safetensors" in str(refused.value) and "\n" not in str(refused.value)
        with pytest.raises(InputError, match=r"\.gguf"):
            opened(model / name)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
def test_a_pickle_by_another_name_is_refused_and_not_executed(name: str, model: Path, mark: Path) -> None:
    (model / name).write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises((InputError, CannotRunError)):
        opened(model / name if name.endswith("gguf") else model)
    with pytest.raises(InputError):
        artefact.load(model / name)
    assert not mark.exists()


@pytest.mark.parametrize(
    "place", ["../secret.safetensors", "/etc/passwd", "sub/model.safetensors", "pytorch_model.bin", "", 5, ["x"]]
)
def test_an_index_names_safetensors_beside_it_and_nothing_else(place: Any, model: Path) -> None:
    (model.parent / "secret.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    (model / "pytorch_model.bin").write_bytes(b"x")
    index = {"weight_map": {"model.embed_tokens.weight": place}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(InputError, match=r"index"):
        opened(model)


def test_code_that_comes_with_a_model_is_not_run(model: Path, mark: Path) -> None:
    code = f"from pathlib import Path\nPath({str(mark)!r}).touch()\n"
    for name in ("modeling_own.py", "configuration_own.py", "tokenization_own.py", "__init__.py", "sitecustomize.py"):
        (model / name).write_text(code, "utf-8")
    own = {"AutoConfig": "configuration_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    for name in ("config.json", "tokenizer_config.json"):
        path = model / name
        before = json.loads(path.read_text("utf-8")) if path.exists() else {}
        path.write_text(json.dumps({**before, "auto_map": own, "trust_remote_code": True}), "utf-8")
    opened(model)
    assert not mark.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ cycler.__init__.__globals__.os.popen('true').read() }}",
        "{{ raise_exception.__globals__ }}", "{{ strftime_now.__globals__['json'] }}", "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}", "{{ messages.append(1) }}",
        "{{ ('%c' * 3) | attr('format_map') (messages) }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}", "{{ self.__init__.__globals__ }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages | map(attribute='__class__') | list }}", "{{ lipsum.__globals__.os }}",
    ],
)  # fmt: skip
def test_a_template_gets_out_of_its_sandbox_nowhere(template: str) -> None:
    try:
        text = render(template, [{"role": "user", "content": "a"}], {})
    except (CannotRunError, InputError) as refused:
        text = ""
        assert "\n" not in str(refused)
    assert not any(word in text for word in ("<class", "<module", "root:", "__builtins__", "object"))

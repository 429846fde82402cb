"""Rendering a model's chat template: jinja2 in a sandbox, with what Hugging Face templates expect to find there.

The template is a program from the model's files: it runs sandboxed, and whatever goes wrong in it is one clear line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ledger.errors import CannotRunError, InputError


class _Refused(Exception):
    """Raised by the template itself, through raise_exception: it does not accept these messages."""


class _GenerationTag(Extension):
    """{% generation %} marks the assistant's words for training; here it only shows its content."""

    tags = {"generation"}  # noqa: RUF012 - the base class's way to declare it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(template: str, messages: Sequence[Mapping[str, str]], special_tokens: Mapping[str, str]) -> str:
    """The conversation as text, up to where the assistant answers.

    messages: {"role", "content"} each. InputError when the template refuses them, CannotRunError when it is faulty.
    """
    roles = ", ".join(message["role"] for message in messages)
    try:
        return _compiled(template).render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=True,
            tools=None,
            documents=None,
            **special_tokens,
        )
    except _Refused as error:
        raise InputError("messages", roles, f"what the model's chat template allows ({_one_line(error)})") from None
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError, RecursionError, ArithmeticError) as error:
        raise CannotRunError(
            f"model: its chat template can't be rendered ({type(error).__name__}: {_one_line(error)}); "
            "send a raw prompt instead"
        ) from None


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    """Compiling takes milliseconds, which a server would spend on every request."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form))
    return environment.from_string(template)


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Plain JSON: jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

"""A tiny HTML builder that escapes everything it is given.

Text becomes `Markup` only by going through `tag`, so a name or an error message cannot turn into markup.
"""

from __future__ import annotations

import re
from html import escape as escape_marks

# What no HTML page may contain, escaped or not.
CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")


class Markup(str):
    """Text that is already HTML."""


def tag(name: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """`<name attributes>children</name>`; plain text and attribute values are escaped, None is left out.

    Attribute names: a trailing underscore is dropped (`class_`), others become dashes (`stroke_width`).
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: str | None) -> Markup:
    """The children one after another, plain text escaped and None left out."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c) for c in children if c is not None))


def escape(text: str) -> str:
    """The text with what HTML gives a meaning escaped, and control characters as U+FFFD."""
    return escape_marks(CONTROLS.sub("\ufffd", text), quote=True)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"

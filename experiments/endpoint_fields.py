"""The fields of a spec that name a server: where it is, which model of it, how long to wait. No secret is among them.

Knows no HTTP. A key is named by the environment variable that holds it, so it is neither stored nor shown, and an
address with a user, a password or a query is refused for the same reason.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ledger.errors import InputError

APIS = ("auto", "completions", "chat")
MOST_RETRIES = 10
MOST_TIMEOUT_S = 3600.0
DEFAULT_TIMEOUT_S = 60.0
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
ADDRESS = "an address such as http://127.0.0.1:8000, without user, password or query; #MODEL behind it names a model"


def checked_address(field: str, text: Any) -> str:
    """The address of a server as it is stored: scheme, host, port, path without /v1, and #MODEL if given.

    InputError otherwise; a password in it is not repeated.
    """
    try:
        parts = urlsplit(str(text).strip())
        port = parts.port
    except ValueError:
        raise InputError(field, _shown(str(text)), ADDRESS) from None
    host = parts.hostname
    refused = parts.username is not None or parts.password is not None or parts.query
    if parts.scheme not in ("http", "https") or not host or refused:
        raise InputError(field, _shown(str(text)), ADDRESS)
    if is_link_local(host):
        raise InputError(field, host, "an address of a server; those of a link (169.254.0.0/16, fe80::/10) are none")
    named = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return urlunsplit((parts.scheme, named if port is None else f"{named}:{port}", path, "", parts.fragment))


def is_link_local(host: str) -> bool:
    """Whether an IP address is one of a link, where cloud machines hand out their own credentials."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_link_local


def split_model(address: str) -> tuple[str, str | None]:
    """(address without #MODEL, the model or None)."""
    base, _, model = address.partition("#")
    return base, model or None


def parse_endpoints(texts: list[str]) -> dict[str, str]:
    """`--endpoint URL` or `--endpoint A=URL,B=URL`: label -> address; one address alone has the label "".

    InputError for more than two, a label twice, or an address that is none.
    """
    found: dict[str, str] = {}
    for part in (piece.strip() for text in texts for piece in text.split(",")):
        label, separator, rest = part.partition("=")
        named = bool(separator) and LABEL.fullmatch(label) is not None
        label, address = (label, rest) if named else ("", part)
        if label in found:
            raise InputError("--endpoint", _shown(part), "each label once: A=URL,B=URL")
        found[label] = checked_address("--endpoint", address)
    if len(found) > 2 or ("" in found and len(found) != 1):
        raise InputError("--endpoint", ", ".join(found), "URL for one server, or A=URL,B=URL for two")
    return found


def endpoint_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec that are about a server, validated; InputError names the first that is wrong."""
    address = spec.get("endpoint")
    api, key_env, model = spec.get("endpoint_api") or "auto", spec.get("key_env") or None, spec.get("endpoint_model")
    if api not in APIS:
        raise InputError("endpoint_api", api, ", ".join(APIS))
    if key_env is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(key_env)):
        raise InputError("key_env", "…", "the name of an environment variable that holds the key, not the key itself")
    return {
        "endpoint": None if address is None else checked_address("endpoint", address),
        "endpoint_model": None if model is None else str(model),
        "endpoint_api": api,
        "key_env": key_env,
        "timeout_s": _bounded("timeout_s", spec.get("timeout_s", DEFAULT_TIMEOUT_S), MOST_TIMEOUT_S),
        "retries": _retries(spec.get("retries", 0)),
    }


def _bounded(name: str, value: Any, most: float) -> float:
    accepted = f"a number above 0 and up to {most:g}, in s"
    try:
        number = float(str(value))
    except ValueError:
        raise InputError(name, value, accepted) from None
    if not 0 < number <= most:
        raise InputError(name, value, accepted)
    return number


def _retries(value: Any) -> int:
    accepted = f"a whole number from 0 to {MOST_RETRIES}"
    try:
        number = int(str(value))
    except ValueError:
        raise InputError("retries", value, accepted) from None
    if not 0 <= number <= MOST_RETRIES:
        raise InputError("retries", value, accepted)
    return number


def _shown(text: str) -> str:
    """An address without what may be secret in it."""
    return re.sub(r"//[^/@]*@", "//…@", text).partition("?")[0]

"""Who may reach a server of ours: addresses of this machine, names under which it may be called, and secrets.

Knows no web framework. The engine's server and the page's both ask it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from urllib.parse import urlsplit

from ledger.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PAGE_TOKEN_ENV = "TRILEMMA_UI_TOKEN"  # how `trilemma ui` hands the token to the page's server


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """The name in a Host header, without the port; empty for what is no host."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def digest(secret: str) -> bytes:
    """Compared instead of the secret: the same length whatever was sent."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def is_secret(given: str, known: bytes) -> bool:
    """Whether `given` is the secret whose digest is `known`, in a time that doesn't depend on where they differ."""
    return hmac.compare_digest(digest(given), known)


def secret_from(option: str, name: str | None, what: str, least: int = 1) -> str | None:
    """The secret in an environment variable; None without a name. Never from the command line, which other users of
    the machine can read. InputError where there is none of at least so many printable characters of ASCII."""
    if name is None:
        return None
    secret = os.environ.get(name, "").strip()
    if len(secret) < least or not secret.isascii() or not secret.isprintable():
        length = "" if least == 1 else f" of at least {least} characters"
        raise InputError(option, name, f"the name of an environment variable that holds {what} in ASCII{length}")
    return secret

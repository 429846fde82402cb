"""Names of servers to addresses, without those of a link: a name may stand for anything, the metadata service too."""

from __future__ import annotations

import socket

from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver

from experiments.endpoint_fields import is_link_local


class PublicResolver(ThreadedResolver):
    """The system's names; OSError for one of a link."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name, asked for anew at each connection."""
        found = await super().resolve(host, port, family)
        if any(is_link_local(address["host"]) for address in found):
            raise OSError(f"{host} is an address of a link")
        return found

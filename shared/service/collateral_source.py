"""Collateral from a caching service of one's own (Intel's PCCS, or one that speaks like it). Knows no signature and no policy.

Off unless `collateral_url` names one; there is no default, and Intel's own service is never asked. Paths: Intel PCCS v4.
"""

from __future__ import annotations

import re

import httpx2

from shared.errors import ConfigurationError, Unavailable
from shared.service.answers import UNCOMPRESSED, BoundedAnswers
from shared.service.transport import HttpTransport
from shared.wire.collateral import Authority, CollateralAnswers

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 1024 * 1024
_URL = re.compile(r"https?://[^/?#@\s]+(/[^?#\s]*)?")
_HEX = re.compile(rb"[0-9a-fA-F]+")
_REMEDY = "Check collateral_url and that service, or put current collateral into the trust folder."


class PccsSource:
    """Four questions per FMSPC, over one connection. Without credentials: everything asked for is public and signed."""

    def __init__(self, url: str, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """Raises: ConfigurationError: the URL is not http, or carries credentials, a query or a fragment."""
        if _URL.fullmatch(url) is None:
            raise ConfigurationError(
                "collateral_url is not a plain http or https URL",
                code="collateral-url",
                remedy="Write scheme://host[:port][/path] of a collateral service of your own, or leave it out.",
            )
        self._base, self._transport = url.rstrip("/"), transport

    async def fetch(self, fmspc: str, authority: Authority) -> CollateralAnswers:
        """Collateral of one FMSPC, hex. Raises: Unavailable."""
        async with httpx2.AsyncClient(
            timeout=TIMEOUT_S,
            headers=UNCOMPRESSED,
            trust_env=False,
            follow_redirects=False,
            transport=BoundedAnswers(self._transport or HttpTransport()),
        ) as client:
            info, info_chain = await self._get(
                client, f"/tdx/certification/v4/tcb?fmspc={fmspc}", "TCB-Info-Issuer-Chain"
            )
            identity, identity_chain = await self._get(
                client, "/tdx/certification/v4/qe/identity", "SGX-Enclave-Identity-Issuer-Chain"
            )
            path = f"/sgx/certification/v4/pckcrl?ca={authority}&encoding=der"
            crl, crl_chain = await self._get(client, path, "SGX-PCK-CRL-Issuer-Chain")
            root_crl, _ = await self._get(client, "/sgx/certification/v4/rootcacrl", None)
        return CollateralAnswers(info, info_chain, identity, identity_chain, _der(crl), crl_chain, _der(root_crl))

    async def _get(self, client: httpx2.AsyncClient, path: str, header: str | None) -> tuple[bytes, str]:
        try:
            async with client.stream("GET", self._base + path) as response:
                body = b""
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise self._useless(path, f"answered with more than {MAX_ANSWER_BYTES} bytes")
        except httpx2.HTTPError as error:
            raise self._useless(path, f"does not answer: {type(error).__name__}") from None
        if response.status_code != 200:
            raise self._useless(path, f"answered {response.status_code}")
        chain = response.headers.get(header, "") if header is not None else ""
        if header is not None and not chain:
            raise self._useless(path, f"answered without {header}")
        return body, chain

    def _useless(self, path: str, why: str) -> Unavailable:
        return Unavailable(
            f"the collateral service at {self._base} {why} (GET {path})", code="collateral-service", remedy=_REMEDY
        )


def _der(body: bytes) -> bytes:
    """A list in DER; the service may write it in hexadecimal."""
    text = body.strip()
    return bytes.fromhex(text.decode()) if len(text) % 2 == 0 and _HEX.fullmatch(text) else body

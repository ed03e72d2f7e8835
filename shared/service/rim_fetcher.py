"""A client of a RIM service (NVIDIA's, or a cache of it), for operators who switch it on by naming its URL. Knows no manifest's content.

    GET URL/NAME -> {"id": NAME, "rim": base64 of the XML, "sha256": …, "request_id": …}     (reference h100.md 3.2)

What comes is not believed: the verifier judges signature, chain, name and version before it keeps anything.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import httpx2

from shared.canonical import json_value
from shared.errors import BadRequest, ConfigurationError, NotFound, Unavailable
from shared.service.answers import UNCOMPRESSED

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 2 << 20


def rim_fetcher(url: str | None, *, transport: httpx2.BaseTransport | None = None) -> Callable[[str], bytes] | None:
    """A function from a manifest's name to its bytes; None where no URL is set: reference values then come from the folder only.

    Raises:
        ConfigurationError: `rim-service`: not an http(s) URL.
    """
    if url is None:
        return None
    if not url.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"rim_service {url!r} is no URL", code="rim-service", expected="https://HOST/PATH",
            remedy="name the service's base URL, or unset rim_service to stay offline",
        )  # fmt: skip
    client = httpx2.Client(base_url=url, timeout=TIMEOUT_S, transport=transport, trust_env=False, headers=UNCOMPRESSED)

    def fetch(name: str) -> bytes:
        """The manifest's bytes. Raises: NotFound `rim-not-found`; Unavailable `rim-service`: no answer, or one of no use."""
        try:
            with client.stream("GET", name) as response:
                body = _body(response)
        except httpx2.HTTPError as error:
            raise _no_use(f"it does not answer ({type(error).__name__})") from None
        if response.status_code == httpx2.codes.NOT_FOUND:
            raise NotFound(f"the RIM service has no {name}", code="rim-not-found")
        if response.status_code != httpx2.codes.OK:
            raise _no_use(f"it answered {response.status_code}")
        return _manifest(body, name)

    return fetch


def _body(response: httpx2.Response) -> bytes:
    """The body: nothing is unpacked, and no more is read than a manifest may have."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _no_use("it answered in an encoding that was not asked for")
    body = b""
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise _no_use(f"it answered with more than {MAX_ANSWER_BYTES} bytes")
    return body


def _manifest(body: bytes, name: str) -> bytes:
    try:
        answer: Any = json_value(body)
        if answer["id"] != name:
            raise _no_use("it answered with another manifest")
        return base64.b64decode(answer["rim"], validate=True)
    except (BadRequest, KeyError, TypeError, ValueError, binascii.Error):
        raise _no_use("its answer is malformed") from None


def _no_use(why: str) -> Unavailable:
    return Unavailable(
        f"the RIM service is of no use: {why}",
        code="rim-service",
        remedy="put the manifest into the trust folder's rim/ by hand",
    )

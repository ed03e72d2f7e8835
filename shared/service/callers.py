"""Who calls: FastAPI dependencies that verify a signed request, require a role, or spool a signed upload. Knows no party table."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from shared.errors import BadRequest, ConfigurationError, NotAuthenticated, NotPermitted
from shared.names import Role
from shared.service.data_dir import unwritable
from shared.service.signatures import (
    VERIFIED,
    Caller,
    RequestParts,
    check_before_body,
    check_digest,
    signed_digest,
    verify_request,
)
from shared.service.state import ServiceState, service_state

_SAFE_METHODS = {"GET", "HEAD"}


def request_parts(request: Request, base_urls: tuple[str, ...]) -> RequestParts:
    """What of an ASGI request is signed.

    The address must be one that this service answers to: a request signed for another service, and passed on by whoever received
    it, is not ours.

    Raises:
        NotAuthenticated: code `signature-invalid`; another address.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers.raw:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    host = headers.get("host", "")
    base = next((url for url in base_urls if url.split("://", 1)[-1] == host), None)
    if base is None:
        raise NotAuthenticated(
            f"the request names host {host[:100]!r}, which this service does not answer to",
            code="signature-invalid",
            remedy="Use the service's own address, or add the one used to its setting public_url (comma-separated).",
            expected=" or ".join(base_urls),
            got=host[:100],
        )
    path = request.scope.get("raw_path") or request.scope["path"].encode()
    query = request.scope.get("query_string", b"")
    target = base + path.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
    return RequestParts(request.method, target, headers)


async def signed_caller(request: Request) -> Caller:
    """The verified sender of a request whose body is buffered; or, on GET and HEAD, the owner of a bearer token.

    Raises:
        NotAuthenticated, Unavailable: as `verify_request`.
    """
    state = service_state(request)
    if (caller := await _bearer(request, state)) is not None:
        return caller
    return await _verify(request, state, request_parts(request, state.base_urls), await request.body())


async def caller_with(request: Request, *roles: Role) -> Caller:
    """As `signed_caller`, for routes that are served directly; the caller has one of `roles`. Raises: NotPermitted, as well."""
    caller = await signed_caller(request)
    _require(caller, roles)
    return caller


async def still_counts(request: Request, caller: Caller) -> bool:
    """Whether the resolver that named the caller would name it again: for who is answered long after the request was verified."""
    state = service_state(request)
    if caller.fingerprint:
        known = None if state.keys is None else await state.keys(caller.fingerprint)
        return known is not None and (known.name, known.roles) == (caller.name, caller.roles)
    token = request.headers.get("authorization", "").partition(" ")[2]
    return state.bearer is not None and await state.bearer(token) == caller


async def require_still(request: Request, caller: Caller) -> None:
    """After a wait. Raises: NotAuthenticated: code `signature-key-unknown`: the caller's key or token was revoked meanwhile."""
    if not await still_counts(request, caller):
        raise NotAuthenticated(
            f"{caller.name}'s key or token was revoked while it waited",
            code="signature-key-unknown",
            remedy="Ask with the one that counts now; the operator or an owner says which.",
        )


CallerDep = Annotated[Caller, Depends(signed_caller)]


def require(*roles: Role) -> Callable[[Caller], Awaitable[Caller]]:
    """A dependency: the verified caller, who has one of `roles`. Raises: NotPermitted."""

    async def permitted(caller: CallerDep) -> Caller:
        _require(caller, roles)
        return caller

    return permitted


@dataclass(frozen=True)
class SignedStream:
    """An upload whose sender is verified and whose digest is signed; its bytes are not read yet."""

    caller: Caller
    request: Request
    digest: bytes

    async def spool(self, directory: Path, limit_bytes: int) -> Path:
        """Writes the body to a new file in `directory` and checks it against the signed digest; the caller deletes the file.

        Raises:
            HTTPException: 413, code `body-too-large`. NotAuthenticated: `content-digest-mismatch`. BadRequest: the sender went away.
            Unavailable: codes `disk-full`, `disk-unusable`. No file is left behind.
        """
        self.request.scope["gput.body_limit"].bytes = limit_bytes
        path = directory / f"upload-{secrets.token_hex(16)}"
        try:
            got = await self._write(path)
            check_digest(self.digest, got)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    async def _write(self, path: Path) -> bytes:
        digest = hashlib.sha256()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                async for chunk in self.request.stream():
                    digest.update(chunk)
                    file.write(chunk)
        except ClientDisconnect:
            raise BadRequest(
                "the upload ended before its end", code="upload-cut-off", remedy="Send it again."
            ) from None
        except OSError as error:
            raise unwritable(path.parent, error) from error
        return digest.digest()


async def signed_stream(request: Request) -> SignedStream:
    """The verified sender of a streamed upload, before its body is read. Raises: as `signed_caller`."""
    state = service_state(request)
    parts = request_parts(request, state.base_urls)
    caller = await _verify(request, state, parts, None)
    return SignedStream(caller, request, signed_digest(parts))


def require_stream(*roles: Role) -> Callable[[SignedStream], Awaitable[SignedStream]]:
    """A dependency: a signed upload from a caller who has one of `roles`. Raises: NotPermitted."""

    async def permitted(upload: Annotated[SignedStream, Depends(signed_stream)]) -> SignedStream:
        _require(upload.caller, roles)
        return upload

    return permitted


async def admit_body(request: Request) -> None:
    """Refuse a body that nobody known has signed before it is read: it would lie in memory for as long as its sender likes.

    Raises:
        NotAuthenticated, NotPermitted, Unavailable: as `signed_caller`.
    """
    state = service_state(request)
    if await _bearer(request, state) is not None or state.keys is None or state.replay is None:
        return
    parts = request_parts(request, state.base_urls)
    await check_before_body(parts, keys=state.keys, now=state.clock(), window_s=state.replay.window_s)


async def _verify(request: Request, state: ServiceState, parts: RequestParts, body: bytes | None) -> Caller:
    if state.keys is None or state.replay is None:
        raise ConfigurationError("this service was built without keys, so it cannot know a caller")
    caller = await verify_request(parts, body, keys=state.keys, now=state.clock(), replay=state.replay)
    request.scope["gput.caller"], request.scope[VERIFIED] = caller.name, parts.headers["signature"]
    return caller


async def _bearer(request: Request, state: ServiceState) -> Caller | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    if state.bearer is None or request.method not in _SAFE_METHODS:
        raise NotPermitted(
            "a bearer token only reads, where this service takes one at all",
            code="token-reads-only",
            remedy="Sign the request with the party's key.",
        )
    caller = await state.bearer(token)
    if caller is None:
        raise NotAuthenticated(
            "the bearer token is not known", code="token-unknown", remedy="Ask the owner for a new one."
        )
    request.scope["gput.caller"] = caller.name
    return caller


def _require(caller: Caller, roles: tuple[Role, ...]) -> None:
    if not caller.roles & set(roles):
        raise NotPermitted(
            f"{caller.name} may not do this",
            code="role-missing",
            remedy="Ask a party that has the role, or have it added to this one.",
            expected=" or ".join(roles),
            got=", ".join(sorted(caller.roles)) or "no role",
        )

"""Who may use the operator's API: a local bearer token, or a request signed by an enrolled operator key. Knows no route.

The operator's token has full rights because it never leaves the holder's own machine (a 0600 file beside the identity); the auditor's only
reads. For callers from elsewhere there are signed requests (RFC 9421).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from data_holder.assembly import Holder
from shared.errors import NotAuthenticated, NotPermitted
from shared.names import Role
from shared.service.callers import admit_body, signed_caller


@dataclass(frozen=True)
class Operator:
    """A caller that was let in, and whether it may change anything."""

    name: str
    may_write: bool
    credential: str  # what let it in: a token's role, or the fingerprint of the key that signed


def holder_of(request: Request) -> Holder:
    """The wired holder of this application."""
    holder: Holder = request.app.state.holder
    return holder


async def _holder(request: Request) -> Holder:
    """`holder_of` as a dependency: a plain function would be called in another thread, at every request."""
    return holder_of(request)


async def reader(request: Request) -> Operator:
    """Anybody known. Raises: NotAuthenticated."""
    if (known := _bearer(request)) is not None:
        return known
    caller = await signed_caller(request)
    return Operator(caller.name, Role.HOLDER in caller.roles, caller.fingerprint)


def _bearer(request: Request) -> Operator | None:
    """Whose token the request brings, if it brings one. Raises: NotAuthenticated."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    role = holder_of(request).foundation.tokens.role_of(token.strip())
    if role is None:
        raise NotAuthenticated(
            "the bearer token is not one of this holder's", code="token-unknown",
            remedy="Read it from operator.token or auditor.token in the holder's data_dir",
        )  # fmt: skip
    request.scope["gput.caller"] = role.value
    return Operator(role.value, role is Role.HOLDER, f"token:{role.value}")


async def admit(request: Request) -> None:
    """By its head, before a long body is read: it comes from somebody known. Raises: NotAuthenticated."""
    if _bearer(request) is None:
        await admit_body(request)


async def writer(operator: Annotated[Operator, Depends(reader)]) -> Operator:
    """An operator, not an auditor. Raises: NotPermitted."""
    if not operator.may_write:
        raise NotPermitted(
            f"{operator.name} may only read", code="role-missing", remedy="Use the operator's token or key"
        )
    return operator


Reader = Annotated[Operator, Depends(reader)]
Writer = Annotated[Operator, Depends(writer)]
HolderDep = Annotated[Holder, Depends(_holder)]


class _Once:
    """A request whose repetition under the same Idempotency-Key is answered as the first time."""

    def __init__(self, request: Request, operator: Reader, holder: HolderDep) -> None:
        self._request, self._operator, self._replies = request, operator, holder.replies

    async def __call__(self, act: Callable[[bool], Awaitable[Response]]) -> Response:
        """`act`, told whether the request has a key, or its stored answer. Raises: as `Replies.once`."""
        return await self._replies.once_if_keyed(self._request, self._operator.credential, act)


Once = Annotated[_Once, Depends()]

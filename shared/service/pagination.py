"""Pages of a list: what a request asks for, and the answer with its way to the next page (cursor, and Link by RFC 8288). Knows no table.

A list route depends on `Paging`, names its list, looks for `ask` entries after `after`, and shows what `cut` leaves of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import Depends, Query, Request, Response

from shared.errors import ConfigurationError
from shared.service.cursors import Cursors, Position
from shared.service.state import service_state

T = TypeVar("T")
MAX_LIMIT = 500
DEFAULT_LIMIT = 50
WHERE = "Where the page begins: the `next` of the page before, as in its Link header."
LINK_HEADER: dict[str, Any] = {
    "description": '`<…>; rel="next"` (RFC 8288), relative to this request: the next page. Absent on the last one.',
    "schema": {"type": "string"},
    "example": '</v1/sessions?limit=50&after=bm90IGEgcmVhbCBjdXJzb3I>; rel="next"',
}


class Listing:
    """One list as one request asks for it.

    Attributes:
        after: position of the last entry of the page before; None for the first page.
        ask: entries to look for, one more than are shown: it tells whether more follow.
        next: cursor of the next page, once `cut` has found that there is one.
    """

    def __init__(
        self, request: Request, response: Response, cursors: Cursors, scope: str, limit: int, after: Any
    ) -> None:
        self.after = after
        self.ask = limit + 1
        self.next: str | None = None
        self._request, self._response, self._cursors, self._scope = request, response, cursors, scope

    def cut(self, found: Sequence[T], position: Callable[[T], Position]) -> Sequence[T]:
        """The entries of this page; says in `next` and in the answer's Link header where the next one begins."""
        shown = found[: self.ask - 1]
        if len(found) > len(shown):
            self.next = self._cursors.encode(self._scope, position(shown[-1]))
            self._response.headers["link"] = link_next(self._request, self.next)
        return shown

    def page(self, items: Sequence[Any]) -> dict[str, Any]:
        """The answer: the entries of the page, as shown, and the cursor of the next one."""
        return {"items": list(items), "next": self.next}


class _Paging:
    """The query parameters of every list."""

    def __init__(
        self,
        request: Request,
        response: Response,
        after: Annotated[str | None, Query(max_length=1024, description=WHERE)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Entries per page.")] = DEFAULT_LIMIT,
    ) -> None:
        self._request, self._response, self._after, self._limit = request, response, after, limit

    def of(self, scope: str) -> Listing:
        """This request's page of the list `scope` (list name and filters; a cursor of another list is refused).

        Raises:
            BadRequest: code `invalid-cursor`.
        """
        cursors = service_state(self._request).cursors
        if cursors is None:
            raise ConfigurationError("this service was built without a key for cursors, so it cannot page a list")
        after = cursors.decode(scope, self._after)
        return Listing(self._request, self._response, cursors, scope, self._limit, after)


Paging = Annotated[_Paging, Depends()]


def link_next(request: Request, cursor: str) -> str:
    """Value of the Link field that leads to the next page, with the request's other parameters.

    A relative reference (RFC 3986 4.2): right behind any proxy, and no Host field of the caller's comes back in it.
    """
    query = request.url.include_query_params(after=cursor).query
    return f'<{quote(request.url.path)}?{query}>; rel="next"'


def document_pages(operation: dict[str, Any]) -> None:
    """Adds the Link header to a list's OpenAPI operation; leaves others as they are."""
    if any(parameter.get("description") == WHERE for parameter in operation.get("parameters", ())):
        operation["responses"]["200"].setdefault("headers", {})["Link"] = LINK_HEADER

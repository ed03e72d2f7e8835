"""Routes served without the framework: found by their path, handed the request, answered by what they return. Knows no route of its own.

Between a request and a function that wants its path and its body the framework puts a dozen layers, and a visit goes through them ten
times (ADR 0020). A route may be served directly where its function takes path parameters (text) and the request, and answers with a
Response (`document` and `caller_with` read the rest). Everything else about it (its place in the API's schema, its errors, its metrics)
is as for any other, so nothing says twice what a route does; a function that wants more is served by the framework.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from shared.claims.shape import MAX_FIELDS, faults_of, too_many
from shared.errors import GputError
from shared.service.problems import error_response, framework_problem, invalid_request

LONGEST_DOCUMENT = 64 * 1024
"""Bytes: what is served directly is a few KiB. JSON is taken apart while nothing else runs."""
M = TypeVar("M", bound=BaseModel)
Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True)
class DirectRoute:
    """A method and a path, and whose they are."""

    method: str
    pattern: re.Pattern[str]
    endpoint: Endpoint
    route: APIRoute

    async def serve(self, parameters: dict[str, str], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; errors of the family and of the framework are problem documents."""
        request = Request(scope, receive)
        scope["route"] = self.route
        try:
            response = await self.endpoint(**parameters, request=request)
        except GputError as error:
            response = error_response(error, request)
        except RequestValidationError as error:
            response = invalid_request(error, request)
        except HTTPException as error:
            response = framework_problem(error, request)
        await response(scope, receive, send)


class DirectRoutes:
    """The direct ones among an application's routes."""

    def __init__(self) -> None:
        self._routes: list[DirectRoute] = []

    def add(self, routes: Iterable[BaseRoute]) -> None:
        """Take those that can be served directly."""
        for route in routes:
            if isinstance(route, APIRoute) and _is_direct(route):
                self._routes += [
                    DirectRoute(method, route.path_regex, route.endpoint, route)
                    for method in sorted(route.methods or ())
                ]

    def find(self, scope: Scope) -> tuple[DirectRoute, dict[str, str]] | None:
        """The route of a request and its path's parameters; None: the framework may know better."""
        method, path = scope["method"], scope["path"]
        for route in self._routes:
            if route.method == method and (found := route.pattern.match(path)) is not None:
                return route, found.groupdict()
        return None


def described(model: type[BaseModel], example: Any = None) -> dict[str, Any]:
    """`openapi_extra` of a direct route whose body is a JSON document of this shape."""
    shown = {} if example is None else {"example": example}
    media = {"schema": _inlined(model.model_json_schema()), **shown}
    return {"requestBody": {"required": True, "content": {"application/json": media}}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its definitions where they are used: a route's own words have no other place in the document for them."""
    known = schema.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(one) for one in value]
        if not isinstance(value, dict):
            return value
        name = value.get("$ref", "").rpartition("/")[2]
        return whole(known[name]) if name in known else {key: whole(one) for key, one in value.items()}

    return {key: whole(value) for key, value in schema.items()}


def asked(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a direct route that takes the fields of this model, all with defaults, in its query."""
    fields = model.model_json_schema()["properties"]
    return {"parameters": [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]}


def query(request: Request, model: type[M]) -> M:
    """The query, whose fields are this model's. Raises: RequestValidationError."""
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise _invalid(error, "query") from None


async def document(request: Request, model: type[M]) -> M:
    """The body, which must be a JSON document of this shape. Raises: RequestValidationError; HTTPException: it is too long for one."""
    body = await request.body()
    if len(body) > LONGEST_DOCUMENT:
        raise HTTPException(413)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _invalid(error, "body") from None


def _invalid(error: ValidationError, place: str) -> RequestValidationError:
    found = faults_of(error)[:MAX_FIELDS] or [{"loc": (), "msg": too_many(error.error_count())}]
    return RequestValidationError([{**one, "loc": (place, *one["loc"])} for one in found])


def _is_direct(route: APIRoute) -> bool:
    """Whether the function wants text from the path and the request, and no dependency or answer model stands around it.

    A status may: it says what the function's own answers have.
    """
    if route.dependencies or not inspect.iscoroutinefunction(route.endpoint):
        return False
    signature = inspect.signature(route.endpoint, eval_str=True)
    wanted = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    in_path = {name for name, annotation in wanted.items() if annotation is str}
    return (
        signature.return_annotation is Response
        and wanted.get("request") is Request
        and wanted.keys() == {*route.param_convertors, "request"}
        and in_path == route.param_convertors.keys()
    )

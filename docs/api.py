"""The reference of the REST interfaces for readers, from the routes themselves: path, who may ask, what is sent and answered, refusals.

Knows the routes of orchestrator and holder, and starts no service.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from data_holder.api import access, datasets, proofs, records, requests, tokens
from orchestrator.app import ROOMS
from shared.names import Role
from shared.service.callers import require, require_stream, signed_caller, signed_stream

HOLDER_ROOMS = (datasets, requests, proofs, records, tokens)
EVERYBODY = "everybody"
KEY = "Idempotency-Key"
PAGING = ("after", "limit")
"""What "in pages" stands for. `after` alone is another thing: where a stream or an inbox is taken up."""
SHOWN = 8
"""Fields of an answer that are named."""
ROLE = re.compile(r"caller_with\(\s*request,\s*((?:Role\.\w+,?\s*)+)\)")
CODE = re.compile(r'code="([a-z0-9-]+)"')
PERMITTED = (require().__qualname__, require_stream().__qualname__)


def orchestrator_reference() -> str:
    """The orchestrator's operations, room by room."""
    return _reference(ROOMS)


def holder_reference() -> str:
    """The operator's interface of a data holder."""
    return _reference(HOLDER_ROOMS)


def _reference(rooms: Iterable[Any]) -> str:
    routes = [route for room in rooms for route in documented(room.router.routes)]
    schema = get_openapi(title="", version="", routes=routes)
    by_tag: dict[str, list[APIRoute]] = {}
    for route in routes:
        by_tag.setdefault(str((route.tags or ["others"])[0]), []).append(route)
    return "\n".join(
        "\n".join([f"### {tag[:1].upper()}{tag[1:]}\n", *_table(found, schema)]) + "\n" + _codes(found)
        for tag, found in by_tag.items()
    )


def documented(routes: Iterable[Any]) -> list[APIRoute]:
    """The operations among them; pages for browsers are none."""
    return [route for route in routes if isinstance(route, APIRoute) and route.include_in_schema]


def _table(routes: Sequence[APIRoute], schema: dict[str, Any]) -> Iterator[str]:
    yield "| request | does | who | sends | answers |\n|---|---|---|---|---|"
    for route in routes:
        for method in sorted(route.methods):
            operation = schema["paths"][route.path_format][method.lower()]
            cells = (
                f"`{method} {route.path_format}`{_query(operation)}", operation.get("summary", ""), who(route),
                _body(operation, schema), _answers(operation, schema),
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"


def who(route: APIRoute) -> str:
    """Who may ask, as the route itself insists."""
    calls = list(_calls(route.dependant))
    if access.writer in calls:
        return "operator"
    if access.reader in calls:
        return "operator, auditor"
    roles = [role for call in calls if getattr(call, "__qualname__", "") in PERMITTED for role in _roles(call)]
    source = _source(route.endpoint)
    if found := ROLE.search(source):
        roles += [Role[name] for name in re.findall(r"Role\.(\w+)", found[1])]
    if roles:
        return ", ".join(dict.fromkeys(role.value for role in roles))
    return "any party" if signed_caller in calls or signed_stream in calls else EVERYBODY


def _calls(dependant: Any) -> Iterator[Any]:
    for inner in dependant.dependencies:
        yield inner.call
        yield from _calls(inner)


def _source(endpoint: Any) -> str:
    """Of a route, and of what it calls in its own file."""
    inspected = inspect.unwrap(endpoint)
    own = inspect.getsource(inspected)
    beside = (inspected.__globals__.get(name) for name in sorted(set(re.findall(r"\b(\w+)\(", own))))
    called = (
        one
        for one in beside
        if inspect.isfunction(one) and one.__module__ == inspected.__module__ and one is not inspected
    )
    return own + "".join(map(inspect.getsource, called))


def _roles(permitted: Any) -> tuple[Role, ...]:
    found: tuple[Role, ...] = inspect.getclosurevars(permitted).nonlocals["roles"]
    return found


def _query(operation: dict[str, Any]) -> str:
    names = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
    pages = "limit" in names
    own = [name for name in names if not (pages and name in PAGING)]
    return (f"<br>?{', '.join(own)}" if own else "") + ("<br>in pages" if pages else "")


def _body(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    said = [_shape(kind, of.get("schema", {}), schema) for kind, of in content.items()]
    keys = [p for p in operation.get("parameters", ()) if p["name"] == KEY]
    if keys:
        said.append(f"{KEY}{'' if keys[0].get('required') else ' (may)'}")
    return "; ".join(said) or "–"


def _answers(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    said = []
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            content = [_exemplified(kind, of, schema) for kind, of in answer.get("content", {}).items()]
            said.append(" ".join([status, *content]))
    return "; ".join(said)


def _exemplified(kind: str, of: dict[str, Any], schema: dict[str, Any]) -> str:
    """By the schema, or where that leaves all open by the example: `items: {…}` is a page of such."""
    shape, example = _shape(kind, of.get("schema", {}), schema), of.get("example")
    if shape != "JSON" or not isinstance(example, dict):
        return shape
    inner = example["items"][0] if example.get("items") else example
    names = list(inner) if isinstance(inner, dict) else []
    fields = ", ".join([*names[:SHOWN], *(["…"] if len(names) > SHOWN else [])])
    return f"`{{items: {{{fields}}}, next}}`" if inner is not example else f"`{{{fields}}}`"


def _shape(kind: str, shape: dict[str, Any], schema: dict[str, Any]) -> str:
    """`{field, field?}` of a JSON document; elsewhere the media type."""
    if kind != "application/json":
        return f"`{kind}`"
    while "$ref" in shape:
        shape = schema["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]]
    required = shape.get("required", ())
    fields = [name if name in required else f"{name}?" for name in shape.get("properties", {})]
    return f"`{{{', '.join(fields)}}}`" if fields else "JSON"


def _codes(routes: Iterable[APIRoute]) -> str:
    """The codes that these routes state themselves; what lies beneath them has more."""
    found = {code for route in routes for code in CODE.findall(_source(route.endpoint))}
    return f"\nRefused here with {', '.join(f'`{code}`' for code in sorted(found))}.\n" if found else ""

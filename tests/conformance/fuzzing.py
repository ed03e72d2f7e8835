"""Runs schemathesis' engine over one service's OpenAPI document, always with the same inputs, and says what was wrong. Knows no service."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.engine import Status, events, from_schema

from tests.conformance.stage import Door

SEED = 20251101
KNOWN = 0.6
"""How often a path parameter is one that exists."""
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "unsupported_method",
)  # fmt: skip


METHODS = {"get", "put", "post", "delete", "patch"}


def operations(document: Mapping[str, Any]) -> set[str]:
    """All operations, as `METHOD /path`."""
    return {
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item if method in METHODS
    }


@dataclass
class Findings:
    """What a run did and found."""

    failures: list[str] = field(default_factory=list)
    answers: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def text(self) -> str:
        """All failures, one per kind."""
        return "\n\n".join(self.failures)

    def operations_with(self, *families: int) -> set[str]:
        """Operations that answered at least once with a status of these hundreds."""
        return {name for name, seen in self.answers.items() if any(code // 100 in families for code in seen)}


def fuzz(
    door: Door, document: Mapping[str, Any], known: Mapping[str, Sequence[Any]], examples: int,
    only: Callable[[str], bool] = lambda _operation: True, *, may_be_unavailable: bool = False, coverage: bool = True,
) -> Findings:  # fmt: skip
    """Examples, coverage and bounded fuzzing of every operation that `only` takes (`METHOD /path`).

    Args:
        known: path parameter (or `body.NAME`) -> values that exist; used for some of the requests.
        may_be_unavailable: whether 503 is a right answer of these operations.
        coverage: whether each boundary of each parameter gets requests of its own, which are the most of all.
        examples: how many requests of random inputs per operation, besides those of the first two phases.
    """
    expected = {"enabled": True, "expected-statuses": ["2xx", "3xx", "4xx", *(["503"] if may_be_unavailable else [])]}
    left_out = [{"include-name": name, "enabled": False} for name in sorted(operations(document)) if not only(name)]
    config = schemathesis.Config.from_dict({
        "seed": SEED, "cache": {"enabled": False}, "request-timeout": 30.0, "max-stream-events": 3,
        "suppress-health-check": ["all"],
        "dictionaries": {name: {"values": list(values)} for name, values in known.items()},
        "parameters": {
            name if "." in name else f"path.{name}": {"dictionary": name, "probability": KNOWN} for name in known
        }
        | {"query.wait": 0},  # long-polls answer at once
        "generation": {"deterministic": True, "no-shrink": True, "max-examples": examples},
        "phases": {
            "stateful": {"enabled": False},
            "examples": {"fill-missing": True},
            "coverage": {"enabled": coverage},
        },
        "checks": {"enabled": False, **{name: {"enabled": True} for name in CHECKS}, "not_a_server_error": expected},
        # From the beginning: a stream of events to come would not end before the timeout.
        "operations": [{"include-path-regex": "/events$", "parameters": {"query.after": 0}}, *left_out],
    })  # fmt: skip
    schema = schemathesis.openapi.from_dict(dict(document), config=config)
    schema.app = door
    found, seen = Findings(), set[tuple[str, str, str]]()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _collect(event, found, seen)
        elif isinstance(event, events.NonFatalError):
            found.failures.append(f"{event.label}: {event.info.title}: {event.value!r}")
        elif isinstance(event, events.FatalError):
            raise event.exception
    return found


CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
TRACES = ("Traceback (most recent call last)", 'File "/', "site-packages")


def problem_fault(status: int, headers: Mapping[str, str], text: str) -> str | None:
    """What is wrong with an answer as a problem document (RFC 9457, design 8); None where nothing is, or where it is no problem."""
    if any(trace in text for trace in TRACES):
        return "it shows a stack trace"
    if status < 400:
        return None
    if headers.get("content-type") != "application/problem+json":
        return f"the content type is {headers.get('content-type')}"
    try:
        document = json.loads(text)
    except ValueError:
        return "it is not JSON"
    if missing := {"type", "title", "status", "detail", "code", "request_id"} - document.keys():
        return f"it lacks {sorted(missing)}"
    if document["status"] != status:
        return "its status is another"
    if not CODE.fullmatch(document["code"]) or document["type"] != f"/problems/{document['code']}":
        return "its code is not kebab-case, or the type is of another code"
    if document["request_id"] != headers.get("x-request-id"):
        return "its request_id is another"
    return None


def _collect(event: events.ScenarioFinished, found: Findings, seen: set[tuple[str, str, str]]) -> None:
    recorder = event.recorder
    for case_id, interaction in recorder.interactions.items():
        if interaction.response is not None:
            response = interaction.response
            found.answers[recorder.label][response.status_code] += 1
            headers = {name.lower(): values[0] for name, values in response.headers.items()}
            text = response.content.decode(errors="replace")  # some answers are bytes
            fault = problem_fault(response.status_code, headers, text)
            if fault is not None:
                found.failures.append(f"{recorder.label}: {response.status_code}: {fault}\n{text[:600]}")
        for check in recorder.checks.get(case_id, ()):
            if check.status is Status.FAILURE and check.failure_info is not None:
                failure: Failure = check.failure_info.failure
                kind = (recorder.label, check.name, failure.message.splitlines()[0] if failure.message else "")
                if kind not in seen:
                    seen.add(kind)
                    answer = interaction.response.content[:600] if interaction.response is not None else "no answer"
                    found.failures.append(
                        f"{recorder.label}: {check.name}: {failure.title}\n{failure.message}\n"
                        f"{check.failure_info.code_sample}\n{answer}"
                    )

"""Writes the parts of the documentation that come from code: diagrams, fields, settings, errors, API, metrics, kept results.

Each page holds `<!-- made from code: NAME -->` … `<!-- end -->`; what lies between is replaced. `--check` only compares, and exits 1
where a page is out of date (the test run does that). Knows the pages and the tables, no service.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from data_holder import metrics as of_holder
from data_holder.protocol.visit import HOLDER_VISIT
from data_holder.settings import HolderSettings
from docs.api import holder_reference, orchestrator_reference
from docs.commands import client_settings, reference
from docs.diagrams import outline, sequence, whole
from docs.performance import results
from gpu_agent import metrics as of_agent
from gpu_agent.hardware.regions import REGION
from gpu_agent.platform.settings import PlatformSettings
from gpu_agent.settings import AgentSettings
from gput.bench import result as kept
from orchestrator import metrics as of_orchestrator
from orchestrator.lease.table import LEASE
from orchestrator.settings import OrchestratorSettings
from shared import errors
from shared.claims.faults import MODELS
from shared.explanations import explanations
from shared.protocol.session import SESSION
from shared.protocol.training import TRAINING
from shared.protocol.visit import VISIT
from shared.service import metrics as every_service
from shared.service.settings import ServiceSettings

PAGES = Path(__file__).parent
BLOCK = re.compile(r"(<!-- made from code: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fields(*models: type[BaseModel], skip: type[BaseModel] | None = None) -> str:
    """A table of every field of the models: type, default, description."""
    parts = []
    for model in models:
        rows = [
            f"### {model.__name__}\n\n{_first(model.__doc__)}\n\n| field | type | default | meaning |\n|---|---|---|---|\n"
        ]
        for name, info in model.model_fields.items():
            if skip is None or name not in skip.model_fields:
                default = (
                    "required" if info.is_required() else f"`{_text(info.get_default(call_default_factory=True))}`"
                )
                kind = _kind(info.annotation)
                rows.append(f"| `{name}` | {kind} | {default} | {info.description or ''} |\n")
        parts.append("".join(rows))
    return "\n".join(parts)


def error_family() -> str:
    """A table of the error classes with HTTP status, default code and exit code."""
    rows = "".join(
        f"| {kind.__name__} | {kind.status} | `{kind.default_code}` | {kind.exit_code} | {_first(kind.__doc__)} |\n"
        for kind in _family(errors.GputError)
    )
    return f"| error | HTTP | default code | exit code | |\n|---|---|---|---|---|\n{rows}"


def metrics() -> str:
    """A table of every metric by service."""
    parts = []
    for service, families in METRICS.items():
        rows = "".join(
            f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {_text(each.says)} |\n"
            for each in families
        )
        parts.append(f"{service}:\n\n| metric | kind | labels | |\n|---|---|---|---|\n{rows}")
    return "\n".join(parts)


def problems() -> str:
    """Every problem code: what it means, why, what to do."""
    parts, families = [], dict.fromkeys(each.family for each in explanations().values())
    for family in families:
        known = [each for each in explanations().values() if each.family == family]
        rows = "".join(f"| `{each.code}` | {_text(each.means)} | {_text(each.do)} |\n" for each in known)
        parts.append(f"## {family}\n\n{known[0].why}\n\n| code | means | do |\n|---|---|---|\n{rows}")
    return "\n".join(parts)


def _family(kind: type[errors.GputError]) -> Iterator[type[errors.GputError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _family(child)


def _first(doc: str | None) -> str:
    return " ".join((doc or "").split("\n\n")[0].split())


def _kind(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in parts)
    if origin is Annotated:
        return _kind(parts[0])
    if origin in (Union, UnionType):
        return " \\| ".join(_kind(part) for part in parts)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " \\| ".join(f"`{value}`" for value in annotation)
    name = getattr(annotation, "__name__", str(annotation))
    inner = ", ".join("…" if part is Ellipsis else _kind(part) for part in parts)
    return f"{name}[{inner}]" if inner else name.replace("NoneType", "None")


def _text(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("typing.", "")


SETTINGS = (OrchestratorSettings, HolderSettings, AgentSettings, PlatformSettings)
METRICS = {
    "Every service": every_service.FAMILIES, "Orchestrator": of_orchestrator.FAMILIES, "Data holder": of_holder.FAMILIES,
    "GPU agent": of_agent.FAMILIES,
}  # fmt: skip
MADE: dict[str, Callable[[], str]] = {
    "session-diagram": lambda: whole(SESSION),
    "visit-diagram": lambda: whole(VISIT),
    "training-diagram": lambda: whole(TRAINING),
    "holder-diagram": lambda: whole(HOLDER_VISIT),
    "region-diagram": lambda: whole(REGION),
    "lease-diagram": lambda: whole(LEASE),
    "visit-sequence": sequence,
    "session-outline": lambda: outline(SESSION),
    "visit-outline": lambda: outline(VISIT),
    "training-outline": lambda: outline(TRAINING),
    "manifest-fields": lambda: fields(*MODELS),
    "common-settings": lambda: fields(ServiceSettings),
    "service-settings": lambda: fields(*SETTINGS, skip=ServiceSettings),
    "error-family": error_family,
    "problems": problems,
    "metrics": metrics,
    "orchestrator-api": orchestrator_reference,
    "holder-api": holder_reference,
    "client-settings": client_settings,
    "command-reference": reference,
    "bench-results": results,
    "bench-fields": lambda: fields(kept.Result, kept.Program, kept.Machine, kept.Figure),
}


def remade(text: str) -> str:
    """The page's text with every block made anew. Raises KeyError for an unknown block."""
    return BLOCK.sub(lambda found: found[1] + MADE[found[2]]() + found[3], text)


def main(check: bool) -> int:
    """Write, or with `check` compare, every page."""
    stale = []
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text()
        new = remade(text)
        if new != text:
            stale.append(page.name)
            if not check:
                page.write_text(new)
    for name in stale:
        print(f"{'out of date' if check else 'written'}: {name}")
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main("--check" in sys.argv[1:]))

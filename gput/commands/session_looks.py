"""The verbs of `gput session` that look at what happened: visits, steps, events as lines, the timeline. Knows the API's views only."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.answers import text_of
from gput.commands.connection import KeyOption, Session, UrlOption, with_session
from gput.commands.manners import FormatOption
from gput.output import Format, emit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gput.client import AsyncClient
    from gput.timeline import Span
    from shared.service.event_reader import Event

COLOURS = {"grant": "cyan", "provision": "yellow", "return": "blue", "train": "green", "scrub": "magenta"}
NARROW, MARGIN = 20, 4
VisitOption = Annotated[str | None, typer.Option("--visit", help="only this visit (v_…, or a beginning of it)")]


def visits(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """Every visit of a session; as JSON with its timers. What its steps took: `gput session steps`.

    Example:  gput session visits s_7f
    """
    emit(
        _visits(session, url, key),
        ("index", "round", "holder", "attempt", "phase", "outcome", "records", "mean_loss", "reason"),
        fmt,
    )


def steps(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """What each step of a session's visits took (ms: median, p99) and its share of their time; closed visits only.

    Example:  gput session steps s_7f
    """
    from gput.steps import COLUMNS, by_step, closed

    emit(by_step(closed(_visits(session, url, key))), COLUMNS, fmt)


def fetches(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """Who fetched the finished model, and when, as the orchestrator wrote it down before it handed it out.

    Example:  gput session fetches s_7f
    """
    rows = with_session(session, url, key, lambda client, name: client.items(f"sessions/{name}/model/fetches"))
    emit(rows, ("at", "party", "role", "fingerprint", "size_bytes"), fmt)


def _visits(session: str, url: str, key: Any) -> list[Any]:
    return with_session(session, url, key, lambda client, name: client.items(f"sessions/{name}/visits"))


def watch(session: Session, url: UrlOption, key: KeyOption) -> None:
    """The session's events as JSON lines until its end; resumes after a dropped connection.

    Example:  gput session watch s_7f | jq .fact
    """
    _follow(session, url, key, Format.JSONL, None, follow=True)


def logs(
    session: Session, url: UrlOption, key: KeyOption, visit: VisitOption = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until the session's end")] = False,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """What happened in a session, or in one visit, a line for each event and each timed step.

    Example:  gput session logs s_7f --visit v_nb -f
    """
    _follow(session, url, key, fmt, visit, follow=follow)


def _follow(session: str, url: str, key: Any, fmt: Format, visit: str | None, *, follow: bool) -> None:
    from gput.event_lines import lines
    from gput.ids import pick

    async def run(client: AsyncClient, name: str) -> list[dict[str, Any]]:
        only = None
        if visit is not None:
            known = (text_of(item, "id") for item in await client.items(f"sessions/{name}/visits"))
            only = pick(visit, known, "v_", "visit", f"`gput session visits {name} --format json` shows them.")
        found = []
        async for event in client.events(name) if follow else past(client, name):
            data = {"id": event.id, "event": event.event, "kind": event.event, **event.data}
            if only in (None, data.get("visit"), *data.get("visits", ())):
                if fmt is Format.JSON:
                    found.append(data)
                else:
                    print(json.dumps(data) if fmt is Format.JSONL else "\n".join(lines(data)), flush=True)
        return found

    kept = with_session(session, url, key, run)
    if fmt is Format.JSON:
        print(json.dumps(kept, indent=2))


async def past(client: AsyncClient, name: str) -> AsyncIterator[Event]:
    """All events until now."""
    now = (await client.session(name))["version"]
    async for event in client.events(name):
        yield event
        if event.data.get("seq", 0) >= now:
            return


def timeline(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """Where the GPU was: a lane for each party, from the orchestrator's timers; as JSON every span with its step.

    Example:  gput session timeline s_7f
    """
    from gput.timeline import spans

    async def read(client: AsyncClient, name: str) -> list[Span]:
        found, manifest = await client.items(f"sessions/{name}/visits"), await client.manifest(name)
        whole = "tour" in (manifest.collect, manifest.accumulate)  # only of such are events worth reading
        return spans(found, [event.data async for event in past(client, name)] if whole else ())

    found = with_session(session, url, key, read)
    if fmt is not Format.TABLE:
        emit([asdict(span) for span in found], (), fmt)
        return
    _draw(found)


def _draw(found: list[Span]) -> None:
    from rich.console import Console
    from rich.text import Text

    from gput.timeline import MARKS, lanes, totals
    from shared.service.printable import printable

    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    if not found:
        print("no visit has been timed yet")
        return
    name = max(len(span.holder) for span in found)
    name = max(name, len("orchestrator"))
    for party, row in lanes(found, max(NARROW, console.width - name - MARGIN)).items():
        line = Text(printable(f"{party:<{name}}  "))
        for kind in row:
            line.append(MARKS[kind] if kind else "░", style=COLOURS.get(kind, "dim"))
        console.print(line)
    length = max(span.begin + span.seconds for span in found) - found[0].begin
    legend = "   ".join(f"{MARKS[kind]} {kind} {seconds:.2f} s" for kind, seconds in totals(found).items())
    console.print(f"{legend}   ░ elsewhere   {length:.1f} s in all", soft_wrap=True)

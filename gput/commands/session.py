"""`gput session`: submit, look at, steer sessions; export the model. Knows the API's views only."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands import session_looks as looks
from gput.commands.agreed import agreed_manifest
from gput.commands.connection import (
    KeyOption,
    NoInputOption,
    Session,
    UrlOption,
    YesOption,
    confirm,
    connect,
    with_session,
)
from gput.commands.manners import Commands, DryRunOption, FormatOption
from gput.commands.rehearse import rehearse
from gput.commands.session_files import export, export_metrics, receipts
from gput.commands.succeed import succeed
from gput.dry_run import judged, refused, would, would_do
from gput.expected import PriceOption, in_full
from gput.files import content as content_of
from gput.output import Format, cell, emit, say, show
from gput.uploads import submit as send
from shared.claims.archive import open_archive
from shared.errors import JobFailed, TimedOut
from shared.names import SessionPhase

if TYPE_CHECKING:
    from gput.client import AsyncClient

app = Commands("Training sessions.\n\nExample:  gput session submit manifest.json --upload mymodel.gput --wait")
TimeoutOption = Annotated[float | None, typer.Option(min=0, help="seconds to wait at most; exit code 3 after them")]


@app.command()
def submit(
    manifest: Annotated[Path, typer.Argument(help="manifest.json")],
    url: UrlOption,
    key: KeyOption,
    wait: Annotated[bool, typer.Option(help="wait for the end; exit code 1 unless it completes")] = False,
    timeout: TimeoutOption = None,
    idempotency_key: Annotated[str | None, typer.Option(help="say the same key again to submit once only")] = None,
    dry_run: DryRunOption = False,
    upload: Annotated[
        list[Path] | None,
        typer.Option(
            help="a file that the manifest names, first of all: program (and the weights beside it), held-out records (repeatable)"
        ),
    ] = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Submit a manifest, signed with your key. `gput session draft` writes one to begin with.

    Example:  gput session submit manifest.json --upload mymodel.gput --wait
    """
    agreed = agreed_manifest(manifest)
    if dry_run:
        _tried(connect(url, key, lambda client: would(client, agreed, upload or (), idempotency_key)), fmt)
        return

    async def run(client: AsyncClient) -> Any:
        view = await send(client, agreed, upload or (), say, idempotency_key=idempotency_key)
        if wait:
            say(f"submitted {view['id']}; waiting for {', '.join(view['waiting_for']) or 'its end'}")
            view = await _end(client, view["id"], timeout)
        return view

    _finish(connect(url, key, run), fmt, wait)


def _tried(found: dict[str, Any], fmt: Format) -> None:
    show(found, fmt)
    for what in found["unjudged"]:
        say(f"not judged: {what}")
    if found["missing"]:
        raise refused("nothing was submitted", found["missing"])
    again = "" if found["changes"] is not False else would_do(f"submit {found['name']}", False) + "; "
    say(f"{again}nothing was submitted")


@app.command()
def draft(
    program: Annotated[Path, typer.Argument(help="program archive")],
    url: UrlOption,
    key: KeyOption,
    holder: Annotated[
        list[str] | None, typer.Option(help="only these holders (repeatable); all that are enrolled")
    ] = None,
    emulated: Annotated[bool, typer.Option(help="accept emulated hardware, which gives no confidentiality")] = False,
) -> None:
    """Print a manifest to begin with: the program's digest and defaults, the enrolled holders with their keys, a buffer that fits.

    Example:  gput session draft mymodel.gput > manifest.json
    """
    from gput.draft import draft as manifest_for
    from gput.enrolled import chosen_holders
    from gput.foreseeing import steps_untold

    archive = open_archive(content_of(program, "no-program"))
    holders = chosen_holders(holder or (), connect(url, key, lambda client: client.items("parties")))
    made = manifest_for(archive, holders, emulated=emulated)
    print(json.dumps(made.model_dump(mode="json"), indent=2))
    if (untold := steps_untold(made)) is not None:
        say(f"note: {untold[0]}. {untold[1]}")


async def _end(client: AsyncClient, session: str, seconds: float | None) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await client.wait(session)
    except TimeoutError:
        remedy = f"It goes on: wait again with `gput session wait {session}`."
        raise TimedOut(f"session {session} has not ended within {seconds:g} s", remedy=remedy) from None


def _finish(view: Any, fmt: Format, must_complete: bool) -> None:
    show(view, fmt)
    if must_complete and view["phase"] != "COMPLETED":
        why = (view.get("failure") or {}).get("detail") or ", ".join(view.get("waiting_for") or [])
        raise JobFailed(
            f"session {view['id']} is {view['phase']}" + (f": {why}" if why else ""), code="not-completed",
            remedy=f"`gput session visits {view['id']}` shows what happened.",
        )  # fmt: skip


@app.command("list")
def list_(url: UrlOption, key: KeyOption, phase: SessionPhase | None = None, fmt: FormatOption = Format.TABLE) -> None:
    """All sessions you take part in.

    Example:  gput session list --phase RUNNING
    """
    rows = connect(url, key, lambda client: client.items("sessions", phase=phase))
    emit(rows, ("id", "name", "phase", "position", "visits_total", "step", "waiting_for"), fmt)


@app.command("show")
def show_(
    session: Session,
    url: UrlOption,
    key: KeyOption,
    gpu_hour_price: PriceOption = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """One session in full: in what its datasets differ (`agreement`), and what it is expected to take (`estimate`).

    Example:  gput session show s_7f --gpu-hour-price 2.5
    """
    show(with_session(session, url, key, lambda client, name: in_full(client, name, gpu_hour_price)), fmt)


for look in (looks.visits, looks.steps, looks.logs, looks.watch, looks.timeline, looks.fetches):
    app.command()(look)


@app.command()
def wait(
    session: Session, url: UrlOption, key: KeyOption, timeout: TimeoutOption = None, fmt: FormatOption = Format.TABLE
) -> None:
    """Wait for the end (or a pause); exit code 1 unless the session completes.

    Example:  gput session wait s_7f --timeout 3600
    """
    view = with_session(session, url, key, lambda client, name: _end(client, name, timeout))
    _finish(view, fmt, must_complete=True)


def _action(name: str, summary: str) -> None:
    def act(
        session: Session,
        url: UrlOption,
        key: KeyOption,
        dry_run: DryRunOption = False,
        fmt: FormatOption = Format.TABLE,
    ) -> None:
        _act(name, session, url, key, dry_run, fmt)

    act.__doc__ = f"{summary}\n\nExample:  gput session {name} s_7f"
    app.command(name)(act)


def _act(action: str, session: str, url: str, key: Path, dry_run: bool, fmt: Format) -> None:
    async def run(client: AsyncClient, name: str) -> Any:
        if not dry_run:
            return await client.act(name, action)
        with judged():
            verdict = await client.would("sessions", name, action)
        view = await client.session(name)
        say(f"{would_do(f'{action} {name}', verdict.changes)}, which is {view['phase']}; nothing was done")
        return view

    show(with_session(session, url, key, run), fmt)


app.command()(succeed)
app.command()(rehearse)
app.command()(export_metrics)
_action("pause", "Pause after the visit under way, with a sealed checkpoint, until `paused_until` at most.")
_action("resume", "Continue a paused session.")


@app.command()
def cancel(
    session: Session, url: UrlOption, key: KeyOption, yes: YesOption = False, no_input: NoInputOption = False,
    dry_run: DryRunOption = False, fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """End a session for good; the visit under way is recalled and the GPU wiped.

    Example:  gput session cancel s_7f --yes
    """
    if not dry_run:
        confirm(f"Cancel {session} for good?", yes, no_input)
    _act("cancel", session, url, key, dry_run, fmt)


@app.command()
def delete(
    session: Session, url: UrlOption, key: KeyOption, yes: YesOption = False, no_input: NoInputOption = False
) -> None:
    """Remove a finished session of yours from the orchestrator for good, its model included. Holders keep their receipts.

    The model and the checkpoints are gone at once. What holders may still have to fetch, receipts and log, goes when each of them has
    it, or after the orchestrator's keep_removed_s.

    Save first what you want to keep: `gput session export`, `gput session receipts`.

    Example:  gput session delete s_7f --yes
    """
    confirm(f"Remove {session} and its model for good?", yes, no_input)
    rest = with_session(session, url, key, lambda client, name: client.delete(name))
    if rest is not None:
        at_most = "" if rest["until"] is None else f", until {cell(rest['until'], 'at')} at most"
        say(f"its model is gone; receipts and log wait for {', '.join(rest['waits_for'])}{at_most}")
    else:
        say("removed; its signed log head stays")


for file in (export, receipts):
    app.command()(file)

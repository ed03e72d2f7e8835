"""`gput session`: submit, look at, steer sessions; export the model. Knows the API's views only."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from gput.client import AsyncClient
from gput.commands.connection import KeyOption, UrlOption, YesOption, confirm, connect, place_for, writable
from gput.output import Format, emit, say, show
from shared.claims.manifest import parse_manifest
from shared.errors import BadRequest, InvalidManifest, JobFailed, TimedOut

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Training sessions.",
)
FormatOption = Annotated[Format, typer.Option("--format", help="table, json or jsonl")]
Session = Annotated[str, typer.Argument(help="session id (s_…)")]
TimeoutOption = Annotated[float | None, typer.Option(min=0, help="seconds to wait at most; exit code 3 after them")]


@app.command()
def submit(
    manifest: Annotated[Path, typer.Argument(help="manifest.json")],
    url: UrlOption,
    key: KeyOption,
    wait: Annotated[bool, typer.Option(help="wait for the end; exit code 1 unless it completes")] = False,
    timeout: TimeoutOption = None,
    idempotency_key: Annotated[str | None, typer.Option(help="say the same key again to submit once only")] = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Submit a manifest, signed with your key.

    Example:  gput session submit manifest.json --wait
    """

    async def run(client: AsyncClient) -> Any:
        view = await client.submit(_manifest(manifest), idempotency_key=idempotency_key)
        if wait:
            say(f"submitted {view['id']}; waiting for {', '.join(view['waiting_for']) or 'its end'}")
            view = await _end(client, view["id"], timeout)
        return view

    _finish(connect(url, key, run), fmt, wait)


async def _end(client: AsyncClient, session: str, seconds: float | None) -> Any:
    try:
        return await asyncio.wait_for(client.wait(session), seconds)
    except TimeoutError:
        remedy = f"It goes on: wait again with `gput session wait {session}`."
        raise TimedOut(f"session {session} has not ended within {seconds:g} s", remedy=remedy) from None


def _manifest(path: Path) -> Any:
    try:
        return parse_manifest(path.read_bytes())
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}", code="no-manifest") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "manifest"
        raise InvalidManifest(f"{path}: {field}: {first['msg']}", remedy="See docs/manifest.md.") from None


def _finish(view: Any, fmt: Format, must_complete: bool) -> None:
    show(view, fmt)
    if must_complete and view["phase"] != "COMPLETED":
        why = (view.get("failure") or {}).get("detail") or ", ".join(view.get("waiting_for") or [])
        raise JobFailed(
            f"session {view['id']} is {view['phase']}" + (f": {why}" if why else ""), code="not-completed",
            remedy=f"`gput session visits {view['id']}` shows what happened.",
        )  # fmt: skip


@app.command("list")
def list_(url: UrlOption, key: KeyOption, phase: str | None = None, fmt: FormatOption = Format.TABLE) -> None:
    """All sessions you take part in."""
    rows = connect(url, key, lambda client: client.items("sessions", phase=phase))
    emit(rows, ("id", "name", "phase", "visits_closed", "visits_total", "step", "waiting_for"), fmt)


@app.command("show")
def show_(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """One session in full."""
    show(connect(url, key, lambda client: client.session(session)), fmt)


@app.command()
def visits(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """Every visit of a session, with its timers."""
    rows = connect(url, key, lambda client: client.items(f"sessions/{session}/visits"))
    emit(rows, ("index", "round", "holder", "attempt", "phase", "outcome", "records", "mean_loss", "reason"), fmt)


@app.command()
def watch(session: Session, url: UrlOption, key: KeyOption) -> None:
    """The session's events as JSON lines until its end; resumes after a dropped connection."""

    async def run(client: AsyncClient) -> None:
        async for event in client.events(session):
            print(json.dumps({"id": event.id, "event": event.event, **event.data}), flush=True)

    connect(url, key, run)


@app.command()
def wait(
    session: Session, url: UrlOption, key: KeyOption, timeout: TimeoutOption = None, fmt: FormatOption = Format.TABLE
) -> None:
    """Wait for the end (or a pause); exit code 1 unless the session completes."""
    _finish(connect(url, key, lambda client: _end(client, session, timeout)), fmt, must_complete=True)


def _action(name: str, summary: str) -> None:
    def act(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
        show(connect(url, key, lambda client: client.act(session, name)), fmt)

    act.__doc__ = summary
    app.command(name)(act)


_action("pause", "Pause after the visit under way, with a sealed checkpoint.")
_action("resume", "Continue a paused session.")


@app.command()
def cancel(
    session: Session, url: UrlOption, key: KeyOption, yes: YesOption = False, fmt: FormatOption = Format.TABLE
) -> None:
    """End a session for good; the visit under way is recalled and the GPU wiped."""
    confirm(f"Cancel {session} for good?", yes)
    show(connect(url, key, lambda client: client.act(session, "cancel")), fmt)


@app.command()
def export(
    session: Session,
    url: UrlOption,
    key: KeyOption,
    output: Annotated[Path, typer.Option("-o", "--output")] = Path("model.safetensors"),
) -> None:
    """Fetch the finished model, as its output policy allows."""
    place_for(output)
    connect(url, key, lambda client: client.model(session, output))
    say(f"wrote {output}")


@app.command()
def receipts(
    session: Session,
    url: UrlOption,
    key: KeyOption,
    trust: Annotated[Path, typer.Option(help="the trust folder whose GPU roots count")],
    output: Annotated[Path, typer.Option("-o", "--output")] = Path("receipts"),
) -> None:
    """Fetch all receipts and the log into a folder for `gput receipts verify`."""
    from gput.receipt_folder import TRUST
    from gput.receipts import save

    missing = [name for name in TRUST if not (trust / name).is_file()]
    if missing:
        remedy = "Name the folder that holds the roots you believe, for instance DEMO/services/trust."
        raise BadRequest(f"{trust} lacks {', '.join(missing)}", code="no-trust", remedy=remedy)
    writable(output)
    connect(url, key, lambda client: save(client, session, output, trust))
    say(f"wrote {output}; verify with: gput receipts verify {output}")

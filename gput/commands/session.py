"""`gput session`: submit, look at, steer sessions; export the model. Knows the API's views only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gput.client import AsyncClient
from gput.commands.connection import KeyOption, UrlOption, YesOption, confirm, connect
from gput.commands.session_metrics import export_metrics
from gput.draft import draft as manifest_for
from gput.files import content as content_of
from gput.files import place_for, writable
from gput.output import Format, emit, say, show
from gput.steps import COLUMNS, by_step, closed
from shared.canonical import sha256
from shared.claims.accountant import privacy_findings
from shared.claims.archive import open_archive
from shared.claims.faults import ManifestRefused, judged
from shared.claims.manifest import Manifest
from shared.claims.policy_lint import lint_manifest
from shared.errors import BadRequest, InvalidProgram, JobFailed, NotFound, TimedOut

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
    upload: Annotated[
        list[Path] | None,
        typer.Option(
            help="a file that the manifest names: program, weights, held-out records; first of all (repeatable)"
        ),
    ] = None,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Submit a manifest, signed with your key. `gput session draft` writes one to begin with.

    Example:  gput session submit manifest.json --upload mymodel.gput --wait
    """
    agreed = _manifest(manifest)

    async def run(client: AsyncClient) -> Any:
        await _upload(client, agreed, upload or ())
        view = await client.submit(agreed, idempotency_key=idempotency_key)
        if wait:
            say(f"submitted {view['id']}; waiting for {', '.join(view['waiting_for']) or 'its end'}")
            view = await _end(client, view["id"], timeout)
        return view

    _finish(connect(url, key, run), fmt, wait)


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
    archive = open_archive(content_of(program, "no-program"))
    enrolled = connect(url, key, lambda client: client.items("parties"))
    keys = {party["name"]: party["key"] for party in enrolled if party["role"] == "holder"}
    chosen = holder or sorted(keys)
    unknown = sorted(set(chosen) - keys.keys())
    if unknown or not chosen:
        what = f"not enrolled as holders: {', '.join(unknown)}" if unknown else "no holder is enrolled"
        remedy = "Enrol a holder's public key: `gput party enrol NAME KEY.pub`."
        raise BadRequest(what, code="party-not-enrolled", remedy=remedy)
    made = manifest_for(archive, {name: keys[name] for name in chosen}, emulated=emulated)
    print(json.dumps(made.model_dump(mode="json"), indent=2))


async def _end(client: AsyncClient, session: str, seconds: float | None) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await client.wait(session)
    except TimeoutError:
        remedy = f"It goes on: wait again with `gput session wait {session}`."
        raise TimedOut(f"session {session} has not ended within {seconds:g} s", remedy=remedy) from None


def _manifest(path: Path) -> Manifest:
    """The manifest in a file; policies in vain and privacy that cannot hold are refused before anything is sent; doubts are said."""
    manifest = judged(content_of(path, "no-manifest"), f"{path}: ")
    lint = lint_manifest(manifest)
    errors = [*privacy_findings(manifest), *lint.errors]
    if errors:
        raise ManifestRefused(errors, f"{path}: ")
    for finding in lint.warnings:
        say(f"warning: {finding.field}: {finding.reason}. {finding.remedy} [{finding.code}]")
    return manifest


async def _upload(client: AsyncClient, manifest: Manifest, paths: Sequence[Path]) -> None:
    """Upload files as what the manifest names by their digest: program, weights or held-out records. Programs go first.

    Raises:
        BadRequest: a file that the manifest does not name (code `not-named`); nothing was sent of it.
    """
    rest = []
    for path in paths:
        content = await asyncio.to_thread(content_of, path, "no-file")
        if _program_in(content) == manifest.program:
            await client.upload_program(content)
            say(f"uploaded {path}: the program")
        else:
            rest.append((path, content))
    weights = {manifest.initial_weights, await _programs_weights(client, manifest.program)} if rest else set()
    for path, content in rest:
        digest = sha256(content).hex()
        if manifest.validation is not None and digest == manifest.validation.dataset:
            await client.upload_validation(content)
            say(f"uploaded {path}: held-out records")
        elif digest in weights:
            await client.upload_weights(content)
            say(f"uploaded {path}: weights to start from")
        else:
            raise BadRequest(
                f"{path} is not what the manifest names ({_named_as(content, digest)})", code="not-named",
                remedy="Put this digest into the manifest as program, initial_weights or validation.dataset.",
            )  # fmt: skip


def _program_in(content: bytes) -> str | None:
    try:
        return open_archive(content).digest.hex()
    except InvalidProgram:
        return None


def _named_as(content: bytes, digest: str) -> str:
    program = _program_in(content)
    return f"SHA-256 {digest}" if program is None else f"program {program}"


async def _programs_weights(client: AsyncClient, program: str) -> str | None:
    """SHA-256 of the weights that a stored program starts from, if it names any."""
    try:
        return str((await client.get(f"programs/{program}"))["initial_weights"].get("sha256"))
    except NotFound:
        return None


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
    """Every visit of a session; as JSON with its timers. What its steps took: `gput session steps`."""
    rows = connect(url, key, lambda client: client.items(f"sessions/{session}/visits"))
    emit(rows, ("index", "round", "holder", "attempt", "phase", "outcome", "records", "mean_loss", "reason"), fmt)


@app.command()
def steps(session: Session, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """What each step of a session's visits took (ms: median, p99) and its share of their time; closed visits only.

    Example:  gput session steps s_0123456789abcdef
    """
    rows = connect(url, key, lambda client: client.items(f"sessions/{session}/visits"))
    emit(by_step(closed(rows)), COLUMNS, fmt)


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


app.command()(export_metrics)
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

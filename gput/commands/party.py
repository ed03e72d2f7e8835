"""`gput party`: keys, enrolment, and a holder's operator speaking to its own service. Knows the APIs' views only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer

from gput.commands.connection import KeyOption, UrlOption, connect
from gput.output import Format, emit, say, show
from shared.crypto.signing import PartyKey, load_public
from shared.errors import BadRequest, Unavailable
from shared.service.problems import error_of

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Parties and approvals.")
FormatOption = Annotated[Format, typer.Option("--format", help="table, json or jsonl")]
HolderUrl = Annotated[str, typer.Option("--holder-url", envvar="GPUT_HOLDER_URL", help="your own holder service")]
Token = Annotated[Path, typer.Option("--token", envvar="GPUT_HOLDER_TOKEN", help="its operator.token file")]
Session = Annotated[str, typer.Argument(help="session id (s_…)")]


@app.command()
def init(output: Annotated[Path, typer.Argument(help="new private key file")]) -> None:
    """Make a key (never overwrites one) and print its fingerprint.

    Example:  gput party init owner.pem
    """
    key = PartyKey.generate()
    key.save(output)
    output.with_suffix(".pub").write_bytes(key.public_pem)
    say(f"wrote {output} (keep it secret) and {output.with_suffix('.pub')}")
    print(key.fingerprint)


@app.command()
def enrol(
    name: str,
    public_key: Annotated[Path, typer.Argument(help="its public key (PEM)")],
    url: UrlOption,
    key: KeyOption,
    role: str = "holder",
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Enrol a party with the orchestrator (owner only)."""
    try:
        public = load_public(public_key.read_bytes())
    except OSError as error:
        raise BadRequest(f"cannot read {public_key}: {error.strerror}", code="no-key") from None
    show(connect(url, key, lambda client: client.enrol(name, public, role)), fmt)


@app.command("list")
def list_(url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """Enrolled parties."""
    rows = connect(url, key, lambda client: client.items("parties"))
    emit(rows, ("name", "role", "key", "last_seen"), fmt)


@app.command()
def requests(holder_url: HolderUrl, token: Token, fmt: FormatOption = Format.TABLE) -> None:
    """Sessions that ask to train on your data."""
    rows = _holder("GET", "requests", holder_url, token)["items"]
    emit(rows, ("session", "state", "phase", "dataset", "waiting_for", "manifest"), fmt)


@app.command()
def request(session: Session, holder_url: HolderUrl, token: Token, fmt: FormatOption = Format.JSON) -> None:
    """What one session would run on your data: program, operators, hyper-parameters, roster, output policy."""
    show(_holder("GET", f"requests/{session}", holder_url, token), fmt)


def _decide(name: str, summary: str) -> None:
    def act(
        session: Session,
        holder_url: HolderUrl,
        token: Token,
        manifest: Annotated[str, typer.Option(help="the manifest digest you read, hex")],
        dataset: Annotated[str | None, typer.Option(help="which of your datasets (approve only)")] = None,
        reason: str = "",
        fmt: FormatOption = Format.TABLE,
    ) -> None:
        body: dict[str, Any] = {"manifest": manifest, "reason": reason}
        if dataset is not None:
            body["dataset"] = dataset
        show(_holder("POST", f"requests/{session}/{name}", holder_url, token, body), fmt)

    act.__doc__ = summary
    app.command(name)(act)


_decide("approve", "Approve a manifest by your holder's signature.")
_decide("refuse", "Refuse a manifest.")
_decide("veto", "Withdraw: no further visit to you, and nobody else is stopped.")


def _holder(method: str, path: str, url: str, token: Path, body: Any = None) -> Any:
    try:
        secret = token.read_text().strip()
    except OSError as error:
        raise BadRequest(f"cannot read {token}: {error.strerror}", code="no-token") from None
    try:
        answer = httpx2.request(
            method, f"{url}/v1/{path}", json=body, headers={"authorization": f"Bearer {secret}"}, timeout=30
        )
    except httpx2.TransportError as error:
        raise Unavailable(f"holder service {url}: {type(error).__name__}", code="peer-unreachable") from None
    if answer.status_code >= 400:
        raise error_of(answer.status_code, answer.content, "holder service")
    return answer.json()

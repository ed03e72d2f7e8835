"""`gput party`: keys, enrolment, and a holder's operator speaking to its own service. Knows the APIs' views only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gput.answers import text_of
from gput.commands import party_keys
from gput.commands.connection import KeyOption, NoInputOption, Session, UrlOption, YesOption, confirm, connect
from gput.commands.manners import Commands, DryRunOption, FormatOption
from gput.commands.operator import (
    HASHING_TIMEOUT_S,
    HOLDER_TIMEOUT_S,
    SERVICE,
    HolderUrl,
    Token,
    ask,
    beforehand,
    every,
)
from gput.commands.party_data import datasets, declare
from gput.dry_run import judged, would_do
from gput.files import place_for, written
from gput.ids import pick, whole
from gput.output import Format, emit, say, show
from gput.whole import replace_whole
from shared.crypto.signing import PartyKey, fingerprint, load_public
from shared.errors import BadRequest, Conflict, NotFound
from shared.service.key_file import key_id, make_key_file

if TYPE_CHECKING:
    from gput.client import AsyncClient

app = Commands("Parties and approvals.\n\nExample:  gput party init keys/owner.pem")
Read = Annotated[str, typer.Option(help="the manifest digest you read, hex")]
DECISION = ("session", "manifest", "state", "dataset", "reason", "decided_at", "decided_by", "delivered", "waiting_for")
REQUEST = ("session", "manifest", "state")
"""Fields without which an answer is none about a request."""
NEWS_S = 10.0
PUBLIC = ".pub"


@app.command()
def init(output: Annotated[Path, typer.Argument(help="new private key file")]) -> None:
    """Make a key (never overwrites one) and print its fingerprint. Its public half goes beside it, as NAME.pub.

    A folder that is missing is made, open to you alone (0700).

    Example:  gput party init keys/owner.pem
    """
    if output.suffix == PUBLIC:
        raise BadRequest(
            f"{output} is a name for the public half",
            code="bad-name",
            remedy=f"Name the private key {output.stem}.pem.",
        )
    place_for(output, 0o700)
    public = output.with_suffix(PUBLIC)
    if public.exists():
        raise Conflict(f"{public} exists already and is kept", code="key-exists", remedy="Choose another name.")
    key = PartyKey.generate()
    with written(output):
        key.save(output)
    try:
        with written(public):
            replace_whole(public, key.public_pem)
    except BaseException:
        output.unlink()  # just made and known to nobody; left there, it would keep the next try from its name
        raise
    say(f"wrote {output} (keep it secret) and {public}")
    print(key.fingerprint)


@app.command("recovery-key")
def recovery_key(output: Annotated[Path, typer.Argument(help="new key file")]) -> None:
    """Make a recovery key for your holder service (never overwrites one) and print its id, by which the holder's log calls it.

    Its setting recovery_key_file names the file. Whoever has both the key and the holder's database can read and forge what that holder
    remembers, so keep a copy elsewhere and lock this one away when an update is done.

    Example:  gput party recovery-key keys/holder-recovery.key
    """
    place_for(output, 0o700)
    with written(output):
        key = make_key_file(output)
    say(f"wrote {output} (keep it secret, and a copy of it elsewhere)")
    print(key_id(key))


@app.command()
def enrol(
    name: str, public_key: Annotated[Path, typer.Argument(help="its public key (PEM)")], url: UrlOption, key: KeyOption,
    role: Literal["holder", "auditor"] = "holder", dry_run: DryRunOption = False, fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Enrol a party with the orchestrator (owner only).

    Example:  gput party enrol north north.pub
    """
    try:
        public = load_public(public_key.read_bytes())
    except OSError as error:
        raise BadRequest(f"cannot read {public_key}: {error.strerror}", code="no-key") from None

    async def run(client: AsyncClient) -> Any:
        if not dry_run:
            return await client.enrol(name, public, role)
        said = {"name": name, "role": role, "public_key": public.hex()}
        with judged():
            verdict = await client.would("parties", body=said)
        was = "new" if verdict.changes else "enrolled so already"
        say(f"would enrol {name} as {role}; {name} is {was}; nothing was done")
        return {**said, "key": fingerprint(public)}

    show(connect(url, key, run), fmt)


@app.command("list")
def list_(url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """Enrolled parties.

    Example:  gput party list
    """
    rows = connect(url, key, lambda client: client.items("parties"))
    emit(rows, ("name", "role", "key", "last_seen"), fmt)


for change in party_keys.COMMANDS:
    app.command()(change)


@app.command()
def requests(holder_url: HolderUrl, token: Token, fmt: FormatOption = Format.TABLE) -> None:
    """Sessions that ask to train on your data.

    Example:  gput party requests
    """
    emit(
        every("requests", holder_url, token),
        ("session", "name", "state", "phase", "program_name", "dataset", "waiting_for", "manifest"),
        fmt,
    )


def _path(session: str, holder_url: str, token: Path) -> str:
    """The request's path, from a beginning of its session's id that is no other's."""
    if not whole(session):
        found = (text_of(item, "session", SERVICE) for item in every("requests", holder_url, token))
        session = pick(session, found, "s_", "session", "`gput party requests` shows them.", SERVICE)
        return f"requests/{session}"
    _heard(session, holder_url, token)
    return f"requests/{session}"


def _heard(session: str, holder_url: str, token: Path) -> None:
    """Who was just told a session's id may be faster than the holder's service, which asks for news. Raises: NotFound: it was not."""
    deadline, said = time.monotonic() + NEWS_S, False
    while True:
        try:
            ask("GET", f"requests/{session}", holder_url, token)
        except NotFound:
            if time.monotonic() > deadline:
                raise
        else:
            return
        if not said:
            say(f"your holder service has not heard of {session}; waiting for its next news")
        said = True
        time.sleep(NEWS_S / 20)


for look in (datasets, declare):
    app.command()(look)


@app.command()
def request(session: Session, holder_url: HolderUrl, token: Token, fmt: FormatOption = Format.JSON) -> None:
    """What one session would run on your data: program, operators, hyper-parameters, roster, output policy.

    Example:  gput party request s_7f
    """
    show(ask("GET", _path(session, holder_url, token), holder_url, token, None, *REQUEST), fmt)


@app.command()
def approve(
    session: Session, holder_url: HolderUrl, token: Token, manifest: Read,
    dataset: Annotated[str | None, typer.Option(help="which of your datasets; default by your policy")] = None,
    statistics: Annotated[bool, typer.Option(help="state how large values are (in decades) and which classes are there")] = True,
    anew: Annotated[bool, typer.Option("--anew", help="in place of your approval, with what the dataset declares now")] = False,
    reason: str = "", dry_run: DryRunOption = False, fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Approve a manifest by your holder's signature, after `gput party request` showed you what it would run.

    It waits until your service has read and hashed the dataset, which for a large one takes minutes to hours; `gput party requests` shows
    how far it is.

    Example:  gput party approve s_7f --manifest DIGEST --dataset ehr
    """
    more = ({"dataset": dataset} if dataset is not None else {}) | ({} if statistics else {"statistics": False})
    more |= {"anew": True} if anew else {}
    _decide("approve", session, holder_url, token, {"manifest": manifest, "reason": reason, **more}, dry_run, fmt)


@app.command()
def refuse(
    session: Session, holder_url: HolderUrl, token: Token, manifest: Read, reason: str = "", dry_run: DryRunOption = False,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Refuse a manifest.

    Example:  gput party refuse s_7f --manifest DIGEST --reason "not our field"
    """
    _decide("refuse", session, holder_url, token, {"manifest": manifest, "reason": reason}, dry_run, fmt)


@app.command()
def veto(
    session: Session, holder_url: HolderUrl, token: Token, manifest: Read, reason: str = "", yes: YesOption = False,
    no_input: NoInputOption = False, dry_run: DryRunOption = False, fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Withdraw for good: no further visit to you, and nobody else is stopped.

    Example:  gput party veto s_7f --manifest DIGEST --yes
    """
    if not dry_run:
        confirm(f"Withdraw from {session} for good?", yes, no_input)
    _decide("veto", session, holder_url, token, {"manifest": manifest, "reason": reason}, dry_run, fmt)


def _decide(verb: str, session: str, url: str, token: Path, body: dict[str, Any], dry_run: bool, fmt: Format) -> None:
    path = _path(session, url, token)
    if not dry_run:
        timeout_s = HASHING_TIMEOUT_S if verb == "approve" else HOLDER_TIMEOUT_S
        _decided(ask("POST", f"{path}/{verb}", url, token, body, *REQUEST, timeout_s=timeout_s), fmt)
        return
    with judged():
        verdict = beforehand(f"{path}/{verb}", url, token, body)
    view = ask("GET", path, url, token, None, *REQUEST)
    for what in verdict.unjudged:
        say(f"not judged: {what}")
    act = f"{verb} {view['session']}"
    say(f"{would_do(act, verdict.changes)}, which is {view['state']}; nothing was done")
    _decided({**view, "unjudged": [*verdict.unjudged]}, fmt)


def _decided(view: Any, fmt: Format) -> None:
    """A table shows the decision; what was decided about is `gput party request`'s."""
    shown = DECISION if fmt is Format.TABLE else tuple(view)
    show({name: view[name] for name in shown if name in view}, fmt)

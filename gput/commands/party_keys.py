"""`gput party`: how an enrolled key changes, is revoked, replaced and looked up (docs/adr/0028). Knows the client, no other command."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from gput.about import PEER, party_of
from gput.answers import unintelligible
from gput.commands.connection import KeyOption, NoInputOption, UrlOption, YesOption, confirm, connect
from gput.commands.manners import DryRunOption, FormatOption
from gput.dry_run import judged, refused, would_do
from gput.output import Format, emit, say, show
from gput.trust import NotBelieved
from gput.whole import replace_whole
from shared.crypto.former_keys import SUFFIX, keep_former, keep_private, kept_private
from shared.crypto.private_file import replace_private
from shared.crypto.signing import PartyKey, fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError, Conflict, NotAuthenticated, Unavailable
from shared.service.data_dir import LOCK, held

if TYPE_CHECKING:
    from gput.client import AsyncClient

Name = Annotated[str, typer.Argument(help="the party's name")]
INTERRUPTED = "an earlier rotation was interrupted; its key counts"
Fingerprint = Annotated[
    str | None,
    typer.Option(help="the key that it has, as its operator or you wrote it down: refused if another is named"),
]
COLUMNS = ("key", "came", "came_by", "valid_from", "valid_until", "ended_by")


def keys(name: Name, url: UrlOption, key: KeyOption, fmt: FormatOption = Format.TABLE) -> None:
    """Every key that a party had: from when to when it counted, how it came, and who ended it.

    Example:  gput party keys north
    """
    emit(connect(url, key, lambda client: client.items(f"parties/{quote(name, safe='')}/keys")), COLUMNS, fmt)


def rotate_key(url: UrlOption, key: KeyOption, dry_run: DryRunOption = False, fmt: FormatOption = Format.TABLE) -> None:
    """Change your enrolled key (a holder's or an auditor's) between sessions: a new one, signed by the old one, is put in its file's place.

    A holder's is identity.pem of its data folder: stop its service, run this, start it again. Interrupted, or without an answer: the same
    command again. Receipts of before verify as they did.

    The old private key is kept in a folder beside the file (identity.former) until you remove it: if another answered in the orchestrator's
    place, which knows the old one only, the same command goes on from that.

    Example:  gput party rotate-key --key holder-north/identity.pem
    """
    draft = key.with_suffix(".next.pem")
    if dry_run:
        show(_tried(url, key, draft), fmt)
        return
    with _at_rest(key.parent):
        PartyKey.load(key)  # else nothing is made
        row = _known(url, draft) if draft.exists() else None
        if row is None:
            _bring_back(url, key)
            row = _tell(url, key, draft)
        else:
            say(INTERRUPTED)
        _put_in_place(key, draft)
    say(f"{key} holds the new key; the old one is refused, and kept in {key.with_suffix(SUFFIX)} until you remove it")
    show(row, fmt)


def _at_rest(folder: Path) -> AbstractContextManager[None]:
    """A service that runs would go on with the old key. Raises, when entered: ConfigurationError `data-dir-in-use`."""
    return held(folder) if (folder / LOCK).exists() else nullcontext()


def _tried(url: str, key: Path, draft: Path) -> Any:
    """Who would have a new key. Raises: BadRequest `would-be-refused`; `not-enrolled`: an owner's key is none that rotates."""
    busy: list[str] = []
    try:
        with _at_rest(key.parent):
            pass
    except ConfigurationError as error:
        busy.append(f"{error.detail} [{error.code}]")
    if draft.exists() and (row := _known(url, draft)) is not None:
        done = f"{INTERRUPTED}: would put it in its file's place"
    else:
        # A key of now stands for one that nobody has made yet: what is judged of it is that it is nobody's.
        new = PartyKey.load(draft) if draft.exists() else PartyKey.generate()
        kept = _counting(url, key)
        row = connect(url, kept or key, lambda client: _asked(client, new.public))
        back = (
            ""
            if kept is None
            else f"go on from the kept key {kept}, for an earlier rotation never reached the orchestrator, and "
        )
        done = f"would {back}make a new key for {row['name']}"
    if busy:
        raise refused("nothing was done", busy)
    say(f"{done}; nothing was done")
    return row


async def _asked(client: AsyncClient, public: bytes) -> Any:
    """Who may change its key to this one."""
    me = await _enrolled(client)
    with judged():
        await client.would("parties", me["name"], "key", body={"public_key": public.hex()})
    return me


async def _enrolled(client: AsyncClient) -> Any:
    """Whose key this is. Raises: BadRequest `not-enrolled`."""
    me = await client.whoami()
    if me["role"] not in ("holder", "auditor"):
        raise BadRequest(
            f"{me['name']} is {me['role']}, whose key is a file in the orchestrator's folder owner_keys", code="not-enrolled",
            remedy="Make a new one (`gput party init`) and put its NAME.pub in the old one's place.",
        )  # fmt: skip
    return me


def _tell(url: str, key: Path, draft: Path) -> Any:
    """The party as it is after its rotation. What counts is that its new key is answered to, whatever came of the change itself."""
    if not draft.exists():
        PartyKey.generate().save(draft)  # on the disk before anybody hears of it
    old, new = PartyKey.load(key), PartyKey.load(draft)

    async def tell(client: AsyncClient) -> None:
        await _enrolled(client)
        await client.rotate_key(old, new)

    lost: NotAuthenticated | NotBelieved | Unavailable | None = None
    try:
        connect(url, key, tell)
    except (NotAuthenticated, NotBelieved, Unavailable) as error:
        # NotBelieved, too: the old key, asked with again behind a lost answer, is refused by an orchestrator that no more verifies it, and
        # so signs nothing for it.
        lost = error
    if (row := _known(url, draft)) is None:
        raise lost or unintelligible(f"says that it took your new key, and does not know it; {key} is as it was", PEER)
    return row


def _bring_back(url: str, key: Path) -> None:
    """Have the file hold the key of before that counts, if there is one. The key that the file held is kept, for this may be another's
    word, too."""
    if (kept := _counting(url, key)) is None:
        return
    keep_private(key, PartyKey.load(key).public)
    _replace(key, kept)
    say(f"an earlier rotation never reached the orchestrator: {key} holds the key of before it, and it begins anew")


def _counting(url: str, key: Path) -> Path | None:
    """The kept key of before to which the orchestrator answers, where it does not know the one in the file: it was another that said
    otherwise. None: there is no such thing. Writes nothing."""
    former = kept_private(key)
    if not former or _known(url, key) is not None:
        return None
    return next((kept for kept in former if _known(url, kept) is not None), None)


def _known(url: str, key: Path) -> Any:
    """Who the orchestrator takes this key for; None: it does not know it."""

    async def ask(client: AsyncClient) -> Any:
        me = await client.whoami()
        return party_of(await client.party(me["name"]), me["name"], me["key"])

    try:
        return connect(url, key, ask)
    except NotAuthenticated as error:
        if error.code != "signature-key-unknown":
            raise
        return None


def _put_in_place(key: Path, draft: Path) -> None:
    old = PartyKey.load(key).public
    if old != PartyKey.load(draft).public:  # else a command died in here
        keep_former(key, old)  # by it a holder's service knows what it signed before
        keep_private(key, old)  # that it is refused was an answer's word
    _replace(key, draft)
    draft.unlink()
    draft.with_suffix(".pub").unlink(missing_ok=True)


def _replace(key: Path, by: Path) -> None:
    replace_private(key, by.read_bytes())
    public = PartyKey.load(key).public_pem
    replace_whole(key.with_suffix(".pub"), public)  # a holder's service writes its NAME.pub anew when it starts


def revoke_key(
    name: Name, url: UrlOption, key: KeyOption, fingerprint: Fingerprint = None, yes: YesOption = False,
    no_input: NoInputOption = False, fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Refuse a party's key from now on, because it is lost or in wrong hands (owner only). Running sessions lose that holder.

    Which key that is, the orchestrator says, and it refuses for any but the party's newest. With --fingerprint it is the one that you name.

    Example:  gput party revoke-key north --yes
    """
    was = connect(url, key, lambda client: _having(client, name, fingerprint))
    # Asked while no event loop runs: in a thread of one, the question would outlive a Ctrl-C.
    confirm(f"Refuse {name}'s key {was['key']} from now on, for good?", yes, no_input)
    say(f"refusing {name}'s key {was['key']} …")
    show(connect(url, key, lambda client: client.revoke_key(name, was["key"])), fmt)


async def _having(client: AsyncClient, name: str, wanted: str | None) -> Any:
    """The party with its newest key. Raises: Conflict `key-mismatch`: that is not the one that is meant."""
    row = await client.party(name)
    if wanted not in (None, row["key"]):
        raise Conflict(
            f"{name} has another key than the one that you named; nothing was done", code="key-mismatch", expected=wanted, got=row["key"],
            remedy="`gput party keys` shows them; ask its operator by a way that you trust.",
        )  # fmt: skip
    return row


def replace_key(
    name: Name, public_key: Annotated[Path, typer.Argument(help="its new public key (PEM)")], url: UrlOption, key: KeyOption,
    replaces: Fingerprint = None, yes: YesOption = False, no_input: NoInputOption = False, dry_run: DryRunOption = False,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Confirm the new key of a party that lost its old one (owner only, between sessions).

    You vouch for it: compare the fingerprint with the party's operator by a way that you trust. It sees nothing of sessions of before.
    The key that it takes the place of is the one that the orchestrator names, or with --replaces the one that you name.

    Example:  gput party replace-key north north.pub
    """
    try:
        public = load_public(public_key.read_bytes())
    except OSError as error:
        raise BadRequest(f"cannot read {public_key}: {error.strerror}", code="no-key") from None

    was = connect(url, key, lambda client: _having(client, name, replaces))
    change = f"{name}'s key {was['key']} by {fingerprint(public)}"
    if dry_run:
        said = {"public_key": public.hex(), "replaces": was["key"]}
        with judged():
            verdict = connect(url, key, lambda client: client.would("parties", name, "replacement", body=said))
        say(f"{would_do(f'replace {change}', verdict.changes)}; nothing was done")
        show(was, fmt)
        return
    confirm(f"Replace {change}?", yes, no_input)
    say(f"replacing {change} …")
    show(connect(url, key, lambda client: client.replace_key(name, public, was["key"])), fmt)


COMMANDS = (keys, rotate_key, revoke_key, replace_key)

"""`gput session succeed`: go on with an ended session's model, with another holder in the place of one that is gone. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.connection import KeyOption, Session, UrlOption, with_session
from gput.commands.manners import FormatOption
from gput.files import distinct, place_for, written
from gput.output import Format, emit, say, show
from gput.whole import replace_whole
from shared.errors import BadRequest

if TYPE_CHECKING:
    from gput.client import AsyncClient
    from shared.claims.manifest import Manifest


def succeed(
    session: Session,
    url: UrlOption,
    key: KeyOption,
    replace: Annotated[
        list[str] | None, typer.Option(help="OLD=NEW: this holder takes that one's place (repeatable)")
    ] = None,
    add: Annotated[list[str] | None, typer.Option(help="one holder more (repeatable)")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="one holder less (repeatable)")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="how many rounds; those that were left, the interrupted one included")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="where the manifest goes")] = Path("successor.json"),
    submit: Annotated[bool, typer.Option(help="submit it as it is, too")] = False,
    fmt: FormatOption = Format.TABLE,
) -> None:
    """Write the manifest of a session that goes on with an ended one's model, optimiser and place in everybody's records.

    Prints in what it differs, and who has to approve. The session must have ended, and its holders have agreed
    ("continuation": "remaining") unless all whose records it has learned from are to be in the new one.

    Example:  gput session succeed s_7f --replace harbour=valley
    """
    swaps = dict(_swap(text) for text in replace or ())
    place_for(output)
    distinct([output], [key])

    async def run(client: AsyncClient, name: str) -> Any:
        old = await client.own_manifest(name)
        new = await client.successor(name, replace=swaps, add=add or (), remove=remove or (), rounds=rounds)
        with written(output):
            replace_whole(output, json.dumps(new.model_dump(mode="json"), indent=2).encode() + b"\n")
        _tell(old, new, output, await _moved(client, old, new))
        return old, new, (await client.submit(new)) if submit else None

    old, new, view = with_session(session, url, key, run)
    if view is not None:
        show(view, fmt)
        return
    from gput.succession import changes

    rows = [{"field": field, "before": before, "after": after} for field, before, after in changes(old, new)]
    emit(rows, ("field", "before", "after"), fmt)


def _swap(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise BadRequest(
            f"{text!r} does not say who takes whose place", code="bad-swap", remedy="Write --replace OLD=NEW."
        )
    return old, new


async def _moved(client: AsyncClient, old: Manifest, new: Manifest) -> set[str]:
    from gput.rotated import rotated

    keys = {entry.holder: entry.key for entry in new.roster}
    return set() if new.predecessor is None else await rotated(client.items, old, new.predecessor, keys)


def _tell(old: Manifest, new: Manifest, output: Path, moved: Collection[str]) -> None:
    from shared.claims.succession import absent, newcomers

    said = new.predecessor
    if said is None:
        return
    names = [entry.holder for entry in new.roster]
    # By key: a name may be another party's by now.
    gone, came = [one.holder for one in absent(new, moved)], newcomers(old, new, moved)
    say(f"wrote {output}: goes on with {said.session} at step {said.step}, for {new.rounds} rounds")
    say(f"records of {', '.join(one.holder for one in said.contributors)} are in that model")
    if gone:
        say(
            f"without {', '.join(gone)}, which agreed that it may go on so, but to nothing more than that manifest said"
        )
    if new.output != old.output:
        say(f"the model goes to {', '.join(new.output.release_to)} alone: who is gone agreed to no other holder")
    say(
        f"next: submit it; {', '.join(names)} approve it" + (f" ({', '.join(came)} for the first time)" if came else "")
    )

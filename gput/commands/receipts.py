"""`gput receipts`: verify and show the receipts in a folder, offline. Knows no service."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Annotated, Any

import typer

from gput.commands.manners import Commands, FormatOption
from gput.output import Format, Ticker, emit, show
from shared.errors import BadRequest

app = Commands("Receipts of visits.\n\nExample:  gput receipts verify runs/latest/receipts")
Folder = Annotated[Path, typer.Argument(help="folder made by `gput session receipts` or `gput demo`")]
HeadOption = Annotated[
    list[str] | None, typer.Option("--head", help="SIZE:ROOT of a log head that a holder remembers; may be repeated")
]
ModelOption = Annotated[
    Path | None, typer.Option("--model", help="a model's file, which must be the one that the receipts end with")
]
PredecessorOption = Annotated[
    Path | None,
    typer.Option(help="folder of the session that this one goes on from; verified too, and that the two fit together"),
]
TrustOption = Annotated[
    Path | None,
    typer.Option(
        help="your trust folder, to judge the keys by; default: the copy in FOLDER, which whoever saved it chose"
    ),
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, max=1024, help="processes to verify with; default: the cores it may use")
]


@app.command()
def verify(
    folder: Folder, head: HeadOption = None, model: ModelOption = None, predecessor: PredecessorOption = None,
    trust: TrustOption = None, jobs: JobsOption = None, fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Verify keys, log and every receipt; exit code 4 and one line that names file, number and check where something does not hold.

    Example:  gput receipts verify runs/latest/receipts --model model.safetensors
    """
    from gput.model_file import check_model
    from gput.receipt_heads import Seen
    from gput.receipts import verify as check
    from shared.quota import usable_cores

    with Ticker("leaves hold") as ticker:
        seen = [Seen.parse(text) for text in head or ()]
        found = check(folder, seen, jobs or usable_cores(), ticker.at, predecessor, trust)
    if model is not None:
        check_model(model, found.models)
    believed_by = f"{folder}, the copy saved there" if trust is None else str(trust)
    show({"result": "all hold", "trust": believed_by, **found.__dict__}, fmt)


@app.command("show")
def show_(folder: Folder, fmt: FormatOption = Format.TABLE) -> None:
    """List the receipts (unverified: use `verify` for that).

    Example:  gput receipts show runs/latest/receipts
    """
    from gput.receipt_folder import LEAVES, parse_line, read_lines
    from shared.errors import GputError
    from shared.protocol.log_events import is_receipt

    rows = []
    for number, line in enumerate(read_lines(folder, LEAVES)):
        try:
            raw = b64decode(parse_line(line)["leaf"])
            rows += [{"leaf": number, **_claims(raw)}] if is_receipt(raw) else []
        except (GputError, KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise BadRequest(f"{LEAVES}: leaf {number} cannot be read", code="bad-receipts") from None
    emit(rows, ("leaf", "index", "round", "holder", "outcome", "epoch", "records", "steps", "backend"), fmt)


def _claims(leaf: bytes) -> dict[str, Any]:
    """What receipt and device's statement say, unverified."""
    from shared.canonical import cbor_value

    receipt = cbor_value(cbor_value(leaf).value[2])
    statement = cbor_value(cbor_value(receipt.pop("statement")).value[2])
    return {**statement, **receipt}

"""`gput receipts`: verify and show the receipts in a folder, offline. Knows no service."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Annotated

import typer

from gput.output import Format, emit, show

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Receipts of visits.")
Folder = Annotated[Path, typer.Argument(help="folder made by `gput session receipts` or `gput demo`")]
FormatOption = Annotated[Format, typer.Option("--format", help="table, json or jsonl")]


@app.command()
def verify(folder: Folder, fmt: FormatOption = Format.TABLE) -> None:
    """Verify keys, log and every receipt; exit code 4 names the first thing that does not hold.

    Example:  gput receipts verify runs/latest/receipts
    """
    from gput.receipts import verify as check

    found = check(folder)
    show({"result": "all hold", **found.__dict__}, fmt)


@app.command("show")
def show_(folder: Folder, fmt: FormatOption = Format.TABLE) -> None:
    """List the receipts (unverified: use `verify` for that)."""
    import cbor2

    from gput.receipts import BUNDLE

    rows = []
    for leaf in json.loads((folder / BUNDLE).read_text())["leaves"]:
        if leaf["kind"] == "receipt":
            receipt = cbor2.loads(cbor2.loads(b64decode(leaf["leaf"])).value[2])
            statement = cbor2.loads(cbor2.loads(receipt.pop("statement")).value[2])
            rows.append({"leaf": leaf["index"], **statement, **receipt})
    emit(rows, ("leaf", "index", "round", "holder", "outcome", "epoch", "records", "steps", "backend"), fmt)

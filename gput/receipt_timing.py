"""How long verifying a folder of receipts takes, beside the least it could: its signatures alone. Knows no output and no maker.

Wall-clock on one thread; the folder was written before, so its files come from memory.
"""

from __future__ import annotations

import time
from base64 import b64decode
from pathlib import Path
from typing import Any

from gput.receipt_folder import LEAVES, parse_line, read_lines, read_session
from gput.receipt_keys import believed_keys
from gput.receipt_leaves import is_receipt
from gput.receipts import verify
from shared.canonical import cbor_value
from shared.claims.receipt import Receipt
from shared.crypto.cose import Sign1, Verifier, parse1


def times(folder: Path) -> dict[str, Any]:
    """Receipts, seconds, receipts per second, and the seconds that their signatures alone take, with the ratio of the two.

    Raises:
        GputError: the folder does not verify: there is nothing to measure.
    """
    began = time.perf_counter()
    found = verify(folder)
    seconds = time.perf_counter() - began
    signed = _signed(folder)
    began = time.perf_counter()
    for message, key in signed:
        message.verified(key)
    bare = time.perf_counter() - began
    return {
        "receipts": found.receipts, "seconds": round(seconds, 3), "receipts_per_s": round(found.receipts / seconds),
        "signatures_s": round(bare, 3), "ratio": round(seconds / bare, 2),
    }  # fmt: skip


def _signed(folder: Path) -> list[tuple[Sign1, Verifier]]:
    """Every receipt's two messages, taken apart, with their keys."""
    keys = believed_keys(folder, read_session(folder))
    found: list[tuple[Sign1, Verifier]] = []
    for line in read_lines(folder, LEAVES):
        leaf = b64decode(parse_line(line)["leaf"])
        if is_receipt(leaf):
            outer = parse1(leaf)
            key = keys.named_by(outer.kid)
            receipt = Receipt.model_validate(cbor_value(outer.verified(key)))
            inner = parse1(receipt.statement)
            found += [(outer, key), (inner, keys.introduced_by(receipt.orchestrator_runtime_data).statement_key)]
    return found

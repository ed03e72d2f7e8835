"""How long verifying a folder of receipts takes, beside the least it could: its signatures alone. Knows no output and no maker.

The folder was written before, so its files come from memory. Wall-clock depends on the cores that are free, the processor's time hardly
does.
"""

from __future__ import annotations

import resource
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

from gput.approvals import signed_for
from gput.receipt_folder import APPROVALS, LEAVES, parse_line, read_lines, read_session
from gput.receipt_keys import believed_keys
from gput.receipts import verify
from shared.claims.exact import claim_of
from shared.claims.receipt import Receipt
from shared.crypto.cose import Sign1, Verifier, parse1
from shared.protocol.log_events import is_receipt


def times(folder: Path, jobs: int) -> dict[str, Any]:
    """Receipts, seconds and receipts per second with so many processes, the processor's seconds in all of them, those that the receipts'
    signatures alone take, and the ratio of these two.

    Raises:
        GputError: the folder does not verify: there is nothing to measure.
    """
    began, busy = time.perf_counter(), _processor_s()
    found = verify(folder, jobs=jobs)
    seconds, busy = time.perf_counter() - began, _processor_s() - busy
    signed = _signed(folder)
    bare = -_processor_s()
    for message, key in signed:
        message.verified(key)
    bare += _processor_s()
    return {
        "receipts": found.receipts, "jobs": jobs, "seconds": round(seconds, 3),
        "receipts_per_s": round(found.receipts / seconds), "processor_s": round(busy, 3),
        "signatures_s": round(bare, 3), "ratio": round(busy / bare, 2),
    }  # fmt: skip


def _processor_s() -> float:
    """User and system time of this process and of those that it started and that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _signed(folder: Path) -> list[tuple[Sign1, Verifier]]:
    """Every receipt's two messages, taken apart, with their keys."""
    keys = believed_keys(folder, signed_for(read_session(folder), read_lines(folder, APPROVALS)))
    found: list[tuple[Sign1, Verifier]] = []
    for line in read_lines(folder, LEAVES):
        leaf = b64decode(parse_line(line)["leaf"])
        if is_receipt(leaf):
            outer = parse1(leaf)
            key = keys.named_by(outer.kid)
            receipt = claim_of(Receipt, outer.verified(key))
            inner = parse1(receipt.statement)
            found += [(outer, key), (inner, keys.introduced_by(receipt.orchestrator_runtime_data).statement_key)]
    return found

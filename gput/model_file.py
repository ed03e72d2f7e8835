"""Whether a model's file is the one that verified receipts speak of. Knows the file's format (safetensors) and no service.

Receipts name a model by the digest of its tensors in memory (`region_digest`), which says nothing of how a file lays them out; it is
computed here from the file alone, so that nobody's word for the file's own digest is needed.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.canonical import json_value
from shared.claims.layout import Placed, RegionPlan, region_digest, tensor_bytes
from shared.claims.program import TensorSpec
from shared.claims.records import SAFETENSORS
from shared.errors import BadRequest, InvalidData, VerificationFailed

_DTYPES = {theirs: ours for ours, theirs in SAFETENSORS.items()}
_PREFIX = 8


def check_model(path: Path, models: Sequence[str]) -> str:
    """The digest (hex) of the model in the file, which is one of `models`: what a session's verified receipts end with.

    Raises:
        VerificationFailed: `model-not-of-receipts`. InvalidData: it is no model's file. BadRequest: it cannot be read.
    """
    found = model_digest(path)
    if found not in models:
        raise VerificationFailed(
            f"{path.name} is not the model that the session's receipts end with", code="model-not-of-receipts",
            expected=" or ".join(models) or "a receipt", got=found,
            remedy="Do not use it. Ask the session's owner and the orchestrator's operator where it comes from.",
        )  # fmt: skip
    return found


def model_check(session: str, folder: Path | None) -> Callable[[Path], object] | None:
    """`check_model` against the receipts in a saved folder, which are verified now; None without a folder.

    Raises:
        BadRequest `other-session`: they are of another. Else as `gput.receipts.verify`.
    """
    if folder is None:
        return None
    from gput.receipts import verify

    found = verify(folder)
    return theirs(session, found.session, found.models)


def theirs(session: str, of: str, models: Sequence[str]) -> Callable[[Path], object]:
    """`check_model` with the models of verified receipts. Raises: BadRequest `other-session`: they are `of` another than `session`."""
    if of != session:
        raise BadRequest(
            "these receipts are of another session", code="other-session", expected=session, got=of,
            remedy="Fetch this session's receipts with `gput session receipts`.",
        )  # fmt: skip
    return lambda path: check_model(path, models)


def model_digest(path: Path) -> str:
    """Digest (BLAKE3, hex) of a safetensors file's tensors, as receipts name it. Raises: InvalidData, BadRequest `no-file`."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _digest(path, content)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        why = getattr(error, "strerror", None) or "it is empty"
        raise BadRequest(f"{path} cannot be read: {why}", code="no-file", remedy="Check the path.") from None


def _digest(path: Path, content: mmap.mmap) -> str:
    start = _PREFIX + int.from_bytes(content[:_PREFIX], "little")
    if start > len(content):
        raise _malformed(path)
    try:
        header = json_value(content[_PREFIX:start])
        header.pop("__metadata__", None)
        tensors = tuple(_placed(name, entry) for name, entry in header.items())
    except (BadRequest, ValidationError, AttributeError, KeyError, TypeError, ValueError):
        raise _malformed(path) from None
    if any(placed.offset < 0 or start + placed.offset + placed.size_bytes > len(content) for placed in tensors):
        raise _malformed(path)
    whole = memoryview(content)
    try:
        return region_digest(
            RegionPlan(tensors, len(content)), lambda offset, length: whole[start + offset : start + offset + length]
        ).hex()
    finally:
        whole.release()


def _placed(name: str, entry: dict[str, Any]) -> Placed:
    spec = TensorSpec.model_validate({"name": name, "dtype": _DTYPES[entry["dtype"]], "shape": tuple(entry["shape"])})
    begin, end = entry["data_offsets"]
    if not type(begin) is type(end) is int:  # JSON's 8.0 is no place in a file
        raise TypeError("offsets are whole numbers")
    if end - begin != tensor_bytes(spec):
        raise ValueError("another length than its shape says")
    return Placed(spec, begin, end - begin)


def _malformed(path: Path) -> InvalidData:
    return InvalidData(f"{path.name} is not a model's safetensors file", code="weights-malformed")

"""Routes of receipts and of the transparency log: leaves, heads, proofs, whose keys signed what, and what they rest on. Knows no GPU."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy import select

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Orchestrator, Parts, visible
from orchestrator.damaged import presentable, readable
from orchestrator.ledger.log import read_head
from orchestrator.ledger.tree import MerkleTree
from orchestrator.sessions.attested import attestation_view
from orchestrator.sessions.rows import showable
from orchestrator.tables import ATTESTATIONS, CHANNELS, LEAVES
from shared.canonical import cbor_value
from shared.claims.manifest import PartyName
from shared.errors import BadRequest, NotFound, VerificationFailed
from shared.protocol.merkle import leaf_hash
from shared.protocol.session import SESSION
from shared.service.pagination import Paging

router = APIRouter(tags=["receipts and log"])
Index = Annotated[int, Query(ge=0, le=2**53)]
OF_SIZE = "Only the leaves of the tree of this size, each with its `path`: the proof that it is in that tree."


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _text(item) for key, item in value.items()}
    return [_text(item) for item in value] if isinstance(value, list) else value


class LeafDamaged(VerificationFailed):
    """A stored leaf is not what the log holds at its place: the database is the platform's, and whoever asked is not at fault."""

    status, default_code = 500, "log-mismatch"

    def __init__(self, index: int, why: str) -> None:
        super().__init__(
            f"Leaf {index} as it is stored {why}",
            remedy="Put back the newest sound copy of the database; a holder has its own receipts.",
        )


def held_leaf(row: Mapping[str, Any], tree: MerkleTree) -> bytes:
    """A stored leaf of the log, which is the one that the journal names. Raises: LeafDamaged."""
    leaf, index = row.get("leaf"), row["idx"]
    if not isinstance(leaf, bytes) or leaf_hash(leaf) != tree.leaf(index):
        raise LeafDamaged(index, "is not the one that the log holds")
    return leaf


def receipt_view(row: Mapping[str, Any], tree: MerkleTree) -> dict[str, Any]:
    """A receipt leaf: the COSE bytes that count, and its claims to read (not verified here).

    Args:
        tree: of the session's log, with this leaf in it.

    Raises:
        LeafDamaged: it is another leaf, or none with a receipt.
    """
    cose = held_leaf(row, tree)
    message = cbor_value(cose)
    if isinstance(message, list):  # what else is in the log (`orchestrator.ledger.log`)
        raise LeafDamaged(row["idx"], "is no receipt")
    claims = cbor_value(message.value[2])
    return {
        "index": row["idx"], "visit": row["visit"], "holder": row["holder"], "outcome": row["outcome"],
        "cose": b64encode(cose).decode(), "receipt": _text(claims),
    }  # fmt: skip


@router.get("/v1/sessions/{session}/receipts", summary="Receipts", responses=ex.shows(ex.listed(ex.RECEIPT)))
async def receipts(
    session: str, caller: Anybody, parts: Parts, paging: Paging, holder: PartyName | None = None
) -> dict[str, Any]:
    tree = (await visible(parts, caller, session)).durable.tree
    listing = paging.of(f"receipts/{session}/{holder}")
    where = {"session": session, "kind": "receipt"} | ({"holder": holder} if holder else {})
    found = await parts.library.page(LEAVES, "idx", listing.after, listing.ask, **where)
    # One that is beyond the tree is on its way into the session's state, or was put there by somebody else.
    found = [row for row in found if row["idx"] < tree.size]
    return listing.page([receipt_view(row, tree) for row in listing.cut(found, lambda row: row["idx"])])


async def _receipt(parts: Orchestrator, session: str, index: int, tree: MerkleTree) -> dict[str, Any]:
    where = (LEAVES.c.session == session) & (LEAVES.c.idx == index) & (LEAVES.c.kind == "receipt")
    found = await parts.store.read(lambda c: readable(c, select(LEAVES).where(where), LEAVES.c.idx))
    if not found or index >= tree.size:
        raise NotFound(f"Leaf {index} of {session} is not a receipt", code="unknown-receipt")
    return found[0]


@router.get("/v1/sessions/{session}/receipts/{index}", summary="One receipt", responses=ex.shows(ex.RECEIPT))
async def receipt(session: str, index: int, caller: Anybody, parts: Parts) -> dict[str, Any]:
    tree = (await visible(parts, caller, session)).durable.tree
    return receipt_view(await _receipt(parts, session, _bounded(index), tree), tree)


@router.get(
    "/v1/sessions/{session}/receipts/{index}/cose", summary="One receipt's COSE_Sign1 bytes", response_class=Response,
    responses=ex.binary("application/cose", "COSE_Sign1 over the canonical CBOR of the receipt."),
)  # fmt: skip
async def receipt_cose(session: str, index: int, caller: Anybody, parts: Parts) -> Response:
    tree = (await visible(parts, caller, session)).durable.tree
    row = await _receipt(parts, session, _bounded(index), tree)
    return Response(held_leaf(row, tree), media_type="application/cose")


def _bounded(index: int) -> int:
    if not 0 <= index < 2**53:
        raise BadRequest(f"{index} is not the index of a leaf", code="no-such-leaf")
    return index


@router.get("/v1/sessions/{session}/log/head", summary="The newest signed tree head", responses=ex.shows(ex.HEAD))
async def head(session: str, caller: Anybody, parts: Parts) -> dict[str, Any]:
    phase = (await visible(parts, caller, session)).durable.phase
    with showable(session):
        row = await parts.store.read(lambda c: read_head(c, session))
        view = None if row is None else presentable(head_view(row))
    if row is None and SESSION.final(phase):
        raise NotFound(
            f"{session} is {phase.value}; it ended before its log had an entry", code="no-head",
            remedy="There are no receipts of it, and none will come.",
        )  # fmt: skip
    if view is None:
        raise NotFound(
            f"The log of {session} has no signed head yet", code="no-head", remedy="Wait for the first visit."
        )
    return dict(view)


def head_view(row: Mapping[str, Any]) -> dict[str, Any]:
    """A signed tree head, from its stored row."""
    return {
        "size": row["size"], "root": row["root"], "signature": b64encode(row["signature"]).decode(),
        "key": row["signing_key"], "time": row["time"],
    }  # fmt: skip


def leaf_view(index: int, kind: str, leaf: bytes, path: Sequence[bytes] | None) -> dict[str, Any]:
    """A leaf's bytes with its way to the root of the tree that was asked about, if one was."""
    way = None if path is None else [node.hex() for node in path]
    return {"index": index, "kind": kind, "leaf": b64encode(leaf).decode(), "path": way}


@router.get("/v1/sessions/{session}/log/leaves", summary="Leaves of the log", responses=ex.shows(ex.listed(ex.LEAF)))
async def leaves(
    session: str, caller: Anybody, parts: Parts, paging: Paging,
    size: Annotated[int | None, Query(ge=0, le=2**53, description=OF_SIZE)] = None, holder: PartyName | None = None,
) -> dict[str, Any]:  # fmt: skip
    tree = (await visible(parts, caller, session)).durable.tree
    if size is not None and size > tree.size:
        raise BadRequest(f"There is no tree of {size} leaves", code="no-such-tree", expected=f"size <= {tree.size}")
    listing = paging.of(f"leaves/{session}/{size}/{holder}")
    where = {"session": session} | ({"holder": holder} if holder else {})
    found = await parts.library.page(LEAVES, "idx", listing.after, listing.ask, **where)
    # One that is beyond the tree is on its way into the session's state, or was put there by somebody else.
    wanted = [row for row in found if row["idx"] < (tree.size if size is None else size)]

    def path(index: int) -> list[bytes] | None:
        return None if size is None else tree.inclusion(index, size)

    shown = listing.cut(wanted, lambda row: row["idx"])
    return listing.page([_held_view(row, tree, path(row["idx"])) for row in shown])


def _held_view(row: Mapping[str, Any], tree: MerkleTree, path: Sequence[bytes] | None) -> dict[str, Any]:
    """A stored leaf, which is the log's, as it is shown. Raises: LeafDamaged."""
    leaf = held_leaf(row, tree)  # before all else: of a damaged row there is its place alone
    return leaf_view(row["idx"], row["kind"], leaf, path)


@router.get(
    "/v1/sessions/{session}/log/inclusion", summary="Proof that a leaf is in the tree",
    responses=ex.shows({"index": 0, "size": 2, "root": ex.H64, "path": [ex.H64]}),
)  # fmt: skip
async def inclusion(session: str, index: Index, size: Index, caller: Anybody, parts: Parts) -> dict[str, Any]:
    tree = (await visible(parts, caller, session)).durable.tree
    if not index < size <= tree.size:
        raise BadRequest(f"There is no leaf {index} in a tree of {size} leaves", code="no-such-leaf",
                         expected=f"index < size <= {tree.size}")  # fmt: skip
    path = [node.hex() for node in tree.inclusion(index, size)]
    return {"index": index, "size": size, "root": tree.root(size).hex(), "path": path}


@router.get(
    "/v1/sessions/{session}/log/consistency", summary="Proof that one tree extends another",
    responses=ex.shows({"from": 1, "to": 2, "path": [ex.H64]}),
)  # fmt: skip
async def consistency(
    session: str, caller: Anybody, parts: Parts, start: Annotated[int, Query(alias="from", ge=0, le=2**53)],
    stop: Annotated[int, Query(alias="to", ge=0, le=2**53)],
) -> dict[str, Any]:  # fmt: skip
    tree = (await visible(parts, caller, session)).durable.tree
    if not start <= stop <= tree.size:
        raise BadRequest(f"There are no trees of {start} and {stop} leaves", code="no-such-tree",
                         expected=f"from <= to <= {tree.size}")  # fmt: skip
    return {"from": start, "to": stop, "path": [node.hex() for node in tree.consistency(start, stop)]}


@router.get(
    "/v1/sessions/{session}/keys",
    summary="Signing keys and the evidence for them",
    responses=ex.shows(ex.listed(ex.KEYS)),
)
async def keys(session: str, caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    await visible(parts, caller, session)
    listing = paging.of(f"keys/{session}")
    found = await parts.library.page(CHANNELS, "channel", listing.after, listing.ask, session=session)
    names = ("life", "boot_counter", "signing_key", "holder", "runtime_data", "evidence", "gpu_evidence")
    with showable(session):
        shown = [presentable({n: row[n] for n in names}) for row in listing.cut(found, lambda row: row["channel"])]
    return listing.page(shown)


@router.get(
    "/v1/sessions/{session}/attestations",
    summary="Attestation results that were relied on: the GPU's and every holder's, check by check",
    responses=ex.shows(ex.listed(ex.ATTESTATION)),
)
async def attestations(session: str, caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    await visible(parts, caller, session)
    listing = paging.of(f"attestations/{session}")
    found = await parts.library.page(ATTESTATIONS, "number", listing.after, listing.ask, session=session)
    with showable(session):
        shown = [attestation_view(row) for row in listing.cut(found, lambda row: row["number"])]
    return listing.page(shown)

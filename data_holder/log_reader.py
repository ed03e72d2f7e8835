"""Reading the session's log: its signed head, held against the remembered one, and inclusion of single receipts. Stores nothing."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from data_holder.answers import leaf_index
from data_holder.links import OrchestratorLink
from data_holder.protocol.state import SessionState
from data_holder.receipts import Check
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import VerificationFailed
from shared.protocol.log_events import checked_event, is_receipt
from shared.protocol.merkle import leaf_hash, verify_consistency, verify_inclusion

PAGE = 200
T = TypeVar("T")
Learn = Callable[[str, bytes], Awaitable[SessionState]]
"""(session, key id) -> the session's state, which knows the key now if there is reason to believe it."""


@dataclass(frozen=True)
class SignedHead:
    """A head that holds, with what shows it: the signer's key (32 bytes), its signature (64), and the proof that this head extends the
    remembered one (empty without one, or where they are the same)."""

    head: TreeHead
    key: bytes
    signature: bytes
    consistency: tuple[bytes, ...]


class LogReader:
    """The log of one session as the orchestrator serves it, believed only as far as signatures and proofs go."""

    def __init__(self, link: OrchestratorLink, state: SessionState) -> None:
        self._link, self._state = link, state
        self._path = f"/v1/sessions/{state.session}/log"

    async def head(self, learn: Learn) -> TreeHead:
        """The newest head. Raises: as `signed_head`."""
        return (await self.signed_head(learn)).head

    async def signed_head(self, learn: Learn) -> SignedHead:
        """The newest head: signed by an orchestrator this holder attested, and an extension of the remembered head.

        Args:
            learn: has the key known that the head names (`data_holder.introductions`).

        Raises:
            VerificationFailed: `log-head-malformed`, `log-signer-unknown`, `log-rolled-back`, or signature or proof.
        """
        answer = await self._link.get_json(f"{self._path}/head")
        try:
            root, key = bytes.fromhex(answer["root"]), bytes.fromhex(answer["key"])
            head = TreeHead(self._state.session, int(answer["size"]), root, int(answer["time"]))
            signature = base64.b64decode(answer["signature"])
        except (KeyError, TypeError, ValueError):
            raise VerificationFailed("the log's head is malformed", code="log-head-malformed") from None
        known = await learn(self._state.session, key)
        if key not in {channel.signing_key for channel in known.channels.values()}:
            raise VerificationFailed(
                "the log's head is signed by nobody this holder attested", code="log-signer-unknown", got=key.hex()
            )
        verify_tree_head(head, key, signature)
        return SignedHead(head, key, signature, tuple(await self._extension(head)))

    async def _extension(self, head: TreeHead) -> list[bytes]:
        remembered = self._state.head
        if remembered is None:
            return []
        if head.size < remembered.size:
            raise VerificationFailed("the log is shorter than the one this holder saw", code="log-rolled-back")
        path = await self.consistency(remembered.size, head.size)
        verify_consistency(remembered.size, remembered.root, head.size, head.root, path)
        return path

    async def consistency(self, start: int, to: int) -> list[bytes]:
        """The proof that the log of size `to` extends that of size `start`; not verified here."""
        answer = await self._link.get_json(f"{self._path}/consistency", params={"from": start, "to": to})
        try:
            return [bytes.fromhex(node) for node in answer["path"]]
        except (KeyError, TypeError, ValueError):
            raise VerificationFailed(
                "the log's consistency answer is malformed", code="bad-consistency-proof"
            ) from None

    async def path(self, index: int, size: int) -> list[bytes]:
        """The way of leaf `index` to the root of the tree of `size` leaves; not verified here. Raises: BadRequest `no-such-leaf`."""
        answer = await self._link.get_json(f"{self._path}/inclusion", params={"index": index, "size": size})
        try:
            return [bytes.fromhex(node) for node in answer["path"]]
        except (KeyError, TypeError, ValueError):
            raise _bad_paths("malformed") from None

    async def paths(self, head: TreeHead, holder: str) -> dict[int, list[bytes]]:
        """By index, for each leaf about this holder, the way to the root of `head`; not verified here. A page of them is one question."""
        found: dict[int, list[bytes]] = {}
        async for page in self._pages(_path_of, head.size, holder=holder):
            found |= page
        return found

    async def events(self, size: int, root: bytes) -> AsyncIterator[tuple[int, list[Any]]]:
        """By index, each event among the leaves of the tree of this size and root, to which its path leads. What the orchestrator leaves
        out is not missed here.

        Raises:
            VerificationFailed: `bad-inclusion-proof`: what it lists is not there, or has no end; `malformed`, `mismatch`: no event of this
                session.
        """
        async for page in self._pages(_bytes_of, size):
            for index, (leaf, path) in page.items():
                if not is_receipt(leaf):
                    verify_inclusion(leaf_hash(leaf), index, size, path, root)
                    yield index, checked_event(leaf, self._state.session)

    async def _pages(
        self, read: Callable[[Mapping[str, Any]], T], size: int, **which: Any
    ) -> AsyncIterator[dict[int, T]]:
        """Page by page, what `read` takes from each leaf listed of the tree of this size, by index. Whoever lists them need not have them:
        what keeps a list from going on for ever is that each of its leaves lies behind the one before it, and within the tree.

        Raises:
            VerificationFailed: `bad-inclusion-proof`.
        """
        asked: dict[str, Any] = {"size": size, "limit": PAGE, **which}
        newest, after = -1, dict[str, Any]()
        while True:
            answer = await self._link.get_json(f"{self._path}/leaves", params=asked | after)
            try:
                items = [(leaf_index(item["index"]), read(item)) for item in answer["items"]]
                after = {"after": str(answer["next"])} if answer["next"] else {}
            except (KeyError, TypeError, ValueError):
                raise _bad_paths("malformed") from None
            if after and not items:
                raise _bad_paths("without end")
            for index, _ in items:
                if not newest < index < size:
                    raise _bad_paths(f"out of order, or not within the {size} that there are")
                newest = index
            yield dict(items)
            if not after:
                return

    @staticmethod
    def inclusion(leaf: bytes, index: int, head: TreeHead, path: list[bytes] | None) -> Check:
        """Whether the receipt lies in the log at its index, as a named check. No path: the orchestrator lists no such leaf."""
        try:
            if path is None:
                raise VerificationFailed(f"the log lists no leaf {index} of this holder", code="bad-inclusion-proof")
            verify_inclusion(leaf_hash(leaf), index, head.size, path, head.root)
        except VerificationFailed as error:
            return Check("log inclusion", False, error.detail)
        return Check("log inclusion", True)


def _path_of(item: Mapping[str, Any]) -> list[bytes]:
    return [bytes.fromhex(node) for node in item["path"]]


def _bytes_of(item: Mapping[str, Any]) -> tuple[bytes, list[bytes]]:
    return base64.b64decode(item["leaf"], validate=True), _path_of(item)


def _bad_paths(how: str) -> VerificationFailed:
    return VerificationFailed(f"the log's leaves are {how}", code="bad-inclusion-proof")

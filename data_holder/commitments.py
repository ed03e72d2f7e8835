"""What this holder commits to when it approves, and proves at every visit: a dataset, its tree and the salt between them.

The salt is derived from a key that the quoting enclave gives this CVM only, so it is stable for (session, dataset) and rests nowhere.
A tree is built once per state of the dataset's files and kept; building may outlive the visit that asked for it. Knows no wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from data_holder.catalogue import Catalogue
from data_holder.datasets import Dataset, RecordTree, forget_tree, tree_is_kept
from data_holder.long_reads import LongReads
from data_holder.sealing import Membership
from shared.claims.program import ProgramManifest
from shared.claims.visit import CursorRange
from shared.crypto.schedule import dataset_salt
from shared.crypto.secret import Secret
from shared.errors import GputError, Unavailable
from shared.service.data_dir import unwritable
from shared.service.logging import get_logger

TOLD_S = 30.0
"""How often it is said how far a tree is."""
INLINE_RECORDS = 256  # up to this many a proof is read faster than a thread is reached
_log = get_logger("data_holder.commitments")


@dataclass(frozen=True)
class Committed:
    """An open dataset with its tree. `root` (hex) is what is approved; `salt` is for the GPU alone."""

    dataset: Dataset
    tree: RecordTree
    salt: Secret

    @property
    def root(self) -> str:
        return self.tree.root.hex()

    async def membership(self, cursor: CursorRange) -> Membership:
        """What the GPU is shown with a visit's records. Raises: UnfitData: the files changed."""
        if cursor.count <= INLINE_RECORDS:
            return Membership(self.salt, *self.tree.shown(cursor))
        return Membership(self.salt, *await asyncio.to_thread(self.tree.shown, cursor))

    def close(self) -> None:
        """Give the mappings back."""
        self.dataset.close()
        self.tree.close()


@dataclass
class _Hashed:
    """How far a tree is: `done` of `records`."""

    records: int
    done: int = 0

    def up_to(self, done: int) -> None:
        self.done = done

    @property
    def percent(self) -> int:
        return 100 * self.done // self.records


class Commitments:
    """Opens datasets with their trees; nothing before `unlock`. `told(session, words)` is called with how far one is that is being built,
    which takes minutes to hours."""

    def __init__(self, holder: str, catalogue: Catalogue, folder: Path, reads: LongReads) -> None:
        self._holder, self._catalogue, self._folder, self._reads = holder, catalogue, folder, reads
        self._key: Secret | None = None
        self.told: Callable[[str, str], Awaitable[None]] = _to_nobody
        self._building: dict[tuple[str, str], asyncio.Task[None]] = {}

    def unlock(self, key: Secret) -> None:
        """Take in the key (32 bytes) that salts are derived from."""
        self._key = key

    async def open(self, session: str, name: str, program: ProgramManifest, expected: str | None = None) -> Committed:
        """The dataset as it lies there now, with its tree; hashes it whole where its files are not those that were hashed last, or what was
        kept of that contradicts itself.

        Args:
            expected: the root that was approved (hex). A kept tree with this root needs no other look.

        Raises:
            UnfitData, NotFound: the dataset cannot be read, or changed meanwhile. ConfigurationError: the tree cannot be kept.
            Unavailable: the quoting enclave has not given the key yet, or the holder stops, or a damaged tree cannot be removed.
        """
        salt = self._salt(session, name)
        dataset = await self._catalogue.open_dataset(name, program)
        try:
            if (kept := await self._kept(session, dataset, salt, expected)) is not None:
                return kept
            dataset.close()
            await self._built(session, name, program, salt)
            dataset = await self._catalogue.open_dataset(name, program)
            return Committed(dataset, await self._tree(session, dataset, salt), salt)
        except BaseException:
            dataset.close()
            raise

    async def _kept(self, session: str, dataset: Dataset, salt: Secret, expected: str | None) -> Committed | None:
        """With the tree that was built before, if there is one. One that is damaged is removed: what it says would be taken for a change
        of the records, or be approved."""
        if not tree_is_kept(dataset, salt.reveal(), self._folder, session):
            return None
        committed = Committed(dataset, await self._tree(session, dataset, salt), salt)
        if committed.root == expected or await self._reads.if_needed(committed.tree.agrees):
            return committed
        committed.tree.close()
        _log.warning("a kept commitment tree is damaged, and made again: look after the disk", session=session)
        await self.forget(session)
        return None

    async def forget(self, session: str) -> None:
        """Remove the session's tree: the session is over, or the GPU refused a proof from it, so it is to be made again.

        Raises:
            Unavailable: `disk-full`, `disk-unusable`: it cannot be removed.
        """
        try:
            await asyncio.to_thread(forget_tree, self._folder, session)
        except OSError as error:
            raise unwritable(self._folder, error) from error

    async def _built(self, session: str, name: str, program: ProgramManifest, salt: Secret) -> None:
        """Have the tree built. Callers share the work, and one that is cancelled does not stop it: the next attempt needs it."""
        task = self._building.get((session, name))
        if task is None:
            task = asyncio.create_task(self._build(session, name, program, salt), name=f"commit {name}")
            self._building[session, name] = task
            task.add_done_callback(lambda done: self._settled(session, name, done))
        await asyncio.shield(task)

    async def _build(self, session: str, name: str, program: ProgramManifest, salt: Secret) -> None:
        dataset = await self._catalogue.open_dataset(name, program)
        hashed, ready = _Hashed(dataset.records), asyncio.Event()
        telling = asyncio.create_task(self._tell(session, name, hashed, ready))
        try:
            (await self._tree(session, dataset, salt, hashed.up_to)).close()
        finally:
            ready.set()
            await telling  # to its end: its last word must not come after what is said of the outcome
            dataset.close()
        _log.info("dataset hashed", session=session, dataset=name, records=dataset.records)

    async def _tell(self, session: str, name: str, hashed: _Hashed, ready: asyncio.Event) -> None:
        while not ready.is_set():
            _log.info("hashing dataset", session=session, dataset=name, records=hashed.records, percent=hashed.percent)
            with suppress(GputError):
                await self.told(session, f"hashing, {hashed.percent} % of {hashed.records} records")
            with suppress(TimeoutError):
                async with asyncio.timeout(TOLD_S):
                    await ready.wait()

    def _settled(self, session: str, name: str, done: asyncio.Task[None]) -> None:
        del self._building[session, name]
        if not done.cancelled() and (error := done.exception()) is not None:
            frames = None if isinstance(error, GputError) else error  # of a fault in this program
            _log.warning(
                "no commitment was built", session=session, dataset=name, error=type(error).__name__, exc_info=frames
            )

    async def _tree(
        self, session: str, dataset: Dataset, salt: Secret, hashed: Callable[[int], None] = lambda done: None
    ) -> RecordTree:
        return await self._reads.if_needed(
            lambda go_on: RecordTree(dataset, salt.reveal(), self._folder, session, go_on=go_on, hashed=hashed)
        )

    def _salt(self, session: str, name: str) -> Secret:
        if self._key is None:
            raise Unavailable(
                "the quoting enclave has not given this holder's commitment key yet", code="journal-locked",
                remedy="Check that the platform's quoting enclave runs and that the evidence token is this CVM's",
            )  # fmt: skip
        return Secret(dataset_salt(self._key.reveal(), self._holder, session, name))


async def _to_nobody(session: str, words: str) -> None:
    """Before anybody wants to be told."""

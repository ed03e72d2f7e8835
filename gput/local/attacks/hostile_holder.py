"""HOSTILE CODE (attack tour): starts the real data holder with a patched visit, so that it misuses the keys it is given. Own process.

Usage: python -m gput.local.attacks.hostile_holder --config NAME.toml, with its orders beside it in NAME.orders.json. The evil is here and
not in the product: the process's quote still names the holder's installed code, for what is patched in memory nobody has measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import data_holder.visits
from data_holder.__main__ import main
from data_holder.carriers import DOORS
from data_holder.gpu_channel import CALL_TIMEOUT_S, FIRST_RETRY_S, Provisioned, Provisioner
from data_holder.sealing import RecordSealer, SealedRecord
from gput.local.attacks.stock_tools import Gpu, overwrite_model, plant_trojan
from shared.claims.visit import Grant
from shared.crypto.aead import SealingChannel
from shared.crypto.visit_key import VisitKey
from shared.errors import GputError
from shared.wire.copy import DATA, CopyHeader, copy_context, pack_header, parse_record

JUNK = b"written by somebody who was not asked. "


class Hostile(Provisioner):
    """Provisions as it must, and does its deed before or after. `visits`: (grant, key, records sent) of every visit so far.

    A subclass has keys and visits of its own, and may say that only some grants concern it.
    """

    orders: ClassVar[dict[str, Any]] = {}
    keys: ClassVar[list[VisitKey]] = []
    visits: ClassVar[list[tuple[Grant, VisitKey, list[bytes]]]] = []
    done: ClassVar[bool] = False

    @classmethod
    def concerned(cls, grant: Grant) -> bool:
        """Whether the visit is the hostile holder's own."""
        return True

    async def provision(self, grant: Grant, gpu: str, sealer: RecordSealer) -> Provisioned:
        """The visit, and the deed once: with a key of an earlier visit before the records, with this visit's key after them."""
        deed, cls = self.orders["deed"], type(self)
        cls.visits.append((grant, self.keys[-1], []))
        if deed == "stale-key" and len(self.visits) == 2:
            await self._stale_key(gpu)
        remember(sealer, cls.visits[-1][2])
        after = await super().provision(grant, gpu, sealer)
        if deed != "stale-key" and not cls.done:
            cls.done = True
            await getattr(self, "_" + deed.replace("-", "_"))(gpu)
        return after

    async def _stale_key(self, gpu: str) -> None:
        """In the second visit: the first one's record again, a new one under its key, and one made out for this visit."""
        old, key, records = self.visits[0]
        now = self.visits[-1][0]
        door = DOORS[now.mode].name
        await self._try("the earlier visit's record, byte for byte", gpu, now.port, door, records[0])
        await self._try("a new record under the earlier visit's key", gpu, now.port, door, forged(old, key, records[0]))
        await self._try("the same, made out for this visit", gpu, now.port, door, forged(now, key, records[0]))

    async def _late_write(self, gpu: str) -> None:
        """Seal one record more than the visit has, and leave its delivery to the platform."""
        grant, key, records = self.visits[-1]
        late = forged(grant, key, records[0], index=len(records))
        self._note("sealed", "sealed", "one record beyond the closing one", port=grant.port, record=late.hex())

    async def _model_overwrite(self, gpu: str) -> None:
        await self._with_whole_gpu(overwrite_model, gpu)

    async def _trojan_code(self, gpu: str) -> None:
        archive = await asyncio.to_thread(Path(self.orders["program"]).read_bytes)
        await self._with_whole_gpu(lambda whole: plant_trojan(whole, archive), gpu)

    async def _with_whole_gpu(self, act: Callable[[Gpu], Awaitable[str]], gpu: str) -> None:
        """Use the visit key as a key to everything; where it is none, at least try a copy into a neighbouring region."""
        grant, key, records = self.visits[-1]
        whole = Gpu(self._link, gpu, grant, key)
        try:
            self._note("command", "accepted", await act(whole), reads=whole.reads)
        except GputError as error:
            self._note("command", error.code, error.detail)
            beside = forged(grant, key, records[0], region=grant.region + 1)
            await self._try("a copy record for a region that is not its own", gpu, grant.port, "copy", beside)

    async def _try(self, what: str, gpu: str, port: str, door: str, body: bytes) -> None:
        while True:
            try:
                await self._link.leave(door, gpu, port, memoryview(body), timeout_s=CALL_TIMEOUT_S)
            except GputError as error:
                if error.code == "port-not-bound":  # the GPU is still on its way
                    await asyncio.sleep(FIRST_RETRY_S)
                    continue
                self._note(what, error.code, error.detail)
            else:
                self._note(what, "accepted", "the GPU took it")
            return

    def _note(self, what: str, code: str, message: str, **more: Any) -> None:
        with Path(self.orders["deeds"]).open("a") as deeds:
            deeds.write(json.dumps({"what": what, "code": code, "message": message, **more}) + "\n")


def remember(sealer: RecordSealer, records: list[bytes]) -> None:
    """Keep every record that it seals."""
    seal = sealer.seal_next

    def sealed(buffer: bytearray | memoryview) -> SealedRecord:
        record = seal(buffer)
        records.append(bytes(record.data))
        return record

    sealer.seal_next = sealed  # type: ignore[method-assign]  # of this sealer alone


def forged(grant: Grant, key: VisitKey, like: bytes, *, index: int | None = None, region: int | None = None) -> bytes:
    """A copy record of junk, made out for `grant` in all that is public, under any kept key; `like` an honest record of that kind.

    Args:
        index: another number than that record's. region: another region than the grant's.
    """
    honest, _, _ = parse_record(like)
    number = honest.index if index is None else index
    where = grant.region if region is None else region
    header = pack_header(CopyHeader(DATA, grant.epoch, where, number, honest.total, honest.length))
    channel = SealingChannel(key.key, label="kept", iv_mask=key.iv_mask, channel_counter=key.channel_counter)
    for _ in range(number):  # the counter goes by the record's number
        channel.seal(b"", b"")
    junk = (JUNK * (honest.length // len(JUNK) + 1))[: honest.length]
    return header + channel.seal(junk, header + copy_context(grant))


Put = Callable[[object, str, Any], None]
"""Sets an attribute of the module that serves visits: by name, for it does not offer these for others' use."""


def keep_keys(keep: Callable[[Grant, VisitKey], None], put: Put = setattr) -> None:
    """Have `keep` told of every visit key that a holder of this process is given, or agrees with the GPU."""

    def keeping(name: str, grant_of: Callable[..., Grant]) -> None:
        real: Callable[..., VisitKey] = getattr(data_holder.visits, name)

        def told(*arguments: Any) -> VisitKey:
            key = real(*arguments)
            keep(grant_of(*arguments), key)
            return key

        put(data_holder.visits, name, told)

    keeping("open_offer", lambda offer, _key: offer.document.grant)
    keeping("agreed_visit_key", lambda _key, _share, grant: grant)


def turn(hostile: type[Hostile], put: Put = setattr) -> None:
    """Keep the visit keys that concern `hostile`, and serve visits by it."""

    def own(grant: Grant, key: VisitKey) -> None:
        if hostile.concerned(grant):
            hostile.keys.append(key)

    keep_keys(own, put)
    put(data_holder.visits, "Provisioner", hostile)


if __name__ == "__main__":
    config = Path(sys.argv[sys.argv.index("--config") + 1])
    Hostile.orders = json.loads(config.with_suffix(".orders.json").read_text())
    turn(Hostile)
    raise SystemExit(main())

"""The synchronous client: what `gput.client` and its rooms do, waited for. Every call goes to an event loop on a thread of its own.

There is no second implementation: each method names the asynchronous one, which has the same signature and lends its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from gput.api import Api
from gput.client import AsyncClient
from gput.loop import Work, words_of
from gput.models import Event, Fetch, Gpu, Me, Party, Removal, Session, StoredProgram, VerifiedReceipts, Visit
from gput.rooms import AsyncGpus, AsyncParties, AsyncPrograms, AsyncReceipts, AsyncSessions, Listed
from gput.trust import Trust, Unattested
from shared.claims.manifest import Manifest
from shared.crypto.signing import PartyKey
from shared.names import SessionPhase
from shared.service.clock import Clock, system_clock
from shared.service.event_reader import Event as PlainEvent
from shared.service.http import Peers
from shared.wire.dry_run import Verdict
from shared.wire.estimate import Estimate

if TYPE_CHECKING:
    from shared.attestation.orchestrator_proof import AttestedOrchestrator

R = TypeVar("R")


class _Room(Generic[R]):
    def __init__(self, work: Work, room: R) -> None:
        self._work, self._room = work, room


@words_of(Api)
class _SyncApi:
    _work: Work
    _client: AsyncClient

    def get(self, path: str, **params: Any) -> Any:
        return self._work.done(self._client.get(path, **params))

    def items(self, path: str, **params: Any) -> list[Any]:
        return self._work.done(self._client.items(path, **params))

    def would(self, *path: str, body: Any = None) -> Verdict:
        return self._work.done(self._client.would(*path, body=body))

    def whoami(self) -> Any:
        return self._work.done(self._client.whoami())

    def party(self, name: str) -> Any:
        return self._work.done(self._client.party(name))

    def enrol(self, name: str, public_key: bytes, role: str = "holder") -> Any:
        return self._work.done(self._client.enrol(name, public_key, role))

    def rotate_key(self, old: PartyKey, new: PartyKey) -> Any:
        return self._work.done(self._client.rotate_key(old, new))

    def revoke_key(self, name: str, key: str) -> Any:
        return self._work.done(self._client.revoke_key(name, key))

    def replace_key(self, name: str, public_key: bytes, replaces: str) -> Any:
        return self._work.done(self._client.replace_key(name, public_key, replaces))

    def upload_program(self, archive: bytes) -> Any:
        return self._work.done(self._client.upload_program(archive))

    def upload_weights(self, weights: bytes) -> Any:
        return self._work.done(self._client.upload_weights(weights))

    def upload_validation(self, records: bytes) -> Any:
        return self._work.done(self._client.upload_validation(records))

    def submit(self, manifest: Manifest, *, idempotency_key: str | None = None, gpu: str | None = None) -> Any:
        return self._work.done(self._client.submit(manifest, idempotency_key=idempotency_key, gpu=gpu))

    def session(
        self, session: str, *, wait: float | None = None, version: int | None = None, phase: str | None = None
    ) -> Any:
        return self._work.done(self._client.session(session, wait=wait, version=version, phase=phase))

    def manifest(self, session: str) -> Manifest:
        return self._work.done(self._client.manifest(session))

    def own_manifest(self, session: str) -> Manifest:
        return self._work.done(self._client.own_manifest(session))

    def successor(
        self, session: str, *, replace: Mapping[str, str] | None = None, add: Sequence[str] = (), remove: Sequence[str] = (),
        rounds: int | None = None,
    ) -> Manifest:  # fmt: skip
        return self._work.done(self._client.successor(session, replace=replace, add=add, remove=remove, rounds=rounds))

    def find(self, session: str) -> str:
        return self._work.done(self._client.find(session))

    def act(self, session: str, action: str) -> Any:
        return self._work.done(self._client.act(session, action))

    def delete(self, session: str) -> Any:
        return self._work.done(self._client.delete(session))

    def wait(self, session: str) -> Any:
        return self._work.done(self._client.wait(session))

    def events(self, session: str, after: int = 0) -> Iterator[PlainEvent]:
        return self._work.each(self._client.events(session, after))

    def patiently(self, session: str, **query: Any) -> Any:
        return self._work.done(self._client.patiently(session, **query))

    def model(self, session: str, target: Path, check: Callable[[Path], object] | None = None) -> Path:
        return self._work.done(self._client.model(session, target, check))

    def raw(self, path: str) -> bytes:
        return self._work.done(self._client.raw(path))


@words_of(AsyncSessions)
class Sessions(_Room[AsyncSessions]):
    def submit(
        self,
        manifest: Manifest | Path | str,
        *,
        upload_files: Sequence[Path | str] = (),
        idempotency_key: str | None = None,
        gpu: str | None = None,
    ) -> Session:
        return self._work.done(
            self._room.submit(manifest, upload_files=upload_files, idempotency_key=idempotency_key, gpu=gpu)
        )

    def show(self, session: str) -> Session:
        return self._work.done(self._room.show(session))

    def estimate(self, session: str) -> Estimate:
        return self._work.done(self._room.estimate(session))

    def list(self, phase: SessionPhase | None = None) -> Listed[Session]:
        return self._work.done(self._room.list(phase))

    def visits(self, session: str) -> Listed[Visit]:
        return self._work.done(self._room.visits(session))

    def wait(self, session: str, timeout_s: float | None = None) -> Session:
        return self._work.done(self._room.wait(session, timeout_s))

    def pause(self, session: str) -> Session:
        return self._work.done(self._room.pause(session))

    def resume(self, session: str) -> Session:
        return self._work.done(self._room.resume(session))

    def successor(
        self, session: str, *, replace: Mapping[str, str] | None = None, add: Sequence[str] = (), remove: Sequence[str] = (),
        rounds: int | None = None,
    ) -> Manifest:  # fmt: skip
        return self._work.done(self._room.successor(session, replace=replace, add=add, remove=remove, rounds=rounds))

    def cancel(self, session: str) -> Session:
        return self._work.done(self._room.cancel(session))

    def delete(self, session: str) -> Removal | None:
        return self._work.done(self._room.delete(session))

    def fetches(self, session: str) -> Listed[Fetch]:
        return self._work.done(self._room.fetches(session))

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        return self._work.each(self._room.events(session, after))

    def model(self, session: str, target: Path | str, *, receipts: VerifiedReceipts | None = None) -> Path:
        return self._work.done(self._room.model(session, target, receipts=receipts))


@words_of(AsyncReceipts)
class Receipts(_Room[AsyncReceipts]):
    def save(self, session: str, folder: Path | str) -> Path:
        return self._work.done(self._room.save(session, folder))

    def verify(self, session: str) -> VerifiedReceipts:
        return self._work.done(self._room.verify(session))

    def verify_folder(self, folder: Path | str, predecessor: Path | str | None = None) -> VerifiedReceipts:
        return self._work.done(self._room.verify_folder(folder, predecessor))


@words_of(AsyncPrograms)
class Programs(_Room[AsyncPrograms]):
    def upload(self, archive: Path | str | bytes) -> StoredProgram:
        return self._work.done(self._room.upload(archive))

    def list(self) -> Listed[StoredProgram]:
        return self._work.done(self._room.list())


@words_of(AsyncParties)
class Parties(_Room[AsyncParties]):
    def me(self) -> Me:
        return self._work.done(self._room.me())

    def list(self) -> Listed[Party]:
        return self._work.done(self._room.list())

    def enrol(self, name: str, public_key: bytes, role: str = "holder") -> Party:
        return self._work.done(self._room.enrol(name, public_key, role))


@words_of(AsyncGpus)
class Gpus(_Room[AsyncGpus]):
    def list(self) -> Listed[Gpu]:
        return self._work.done(self._room.list())


@words_of(AsyncClient)
class Client(_SyncApi):
    def __init__(
        self, url: str, key: PartyKey | Path | str, *, trust: Trust | Unattested | None = None, peers: Peers | None = None,
        clock: Clock = system_clock,
    ) -> None:  # fmt: skip
        loaded = key if isinstance(key, PartyKey) else PartyKey.load(Path(key))  # may raise: nothing to clean up yet
        self._work = Work()
        try:
            self._client = self._work.done(_made(url, loaded, trust, peers, clock))
        except BaseException:
            self._work.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread; again is no error."""
        self._work.end(self._client.close())

    def attest(self) -> AttestedOrchestrator:
        return self._work.done(self._client.attest())

    @property
    def sessions(self) -> Sessions:
        return Sessions(self._work, self._client.sessions)

    @property
    def receipts(self) -> Receipts:
        return Receipts(self._work, self._client.receipts)

    @property
    def programs(self) -> Programs:
        return Programs(self._work, self._client.programs)

    @property
    def parties(self) -> Parties:
        return Parties(self._work, self._client.parties)

    @property
    def gpus(self) -> Gpus:
        return Gpus(self._work, self._client.gpus)


async def _made(
    url: str, key: PartyKey, trust: Trust | Unattested | None, peers: Peers | None, clock: Clock
) -> AsyncClient:
    return AsyncClient(url, key, trust=trust, peers=peers, clock=clock)

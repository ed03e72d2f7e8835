"""`gput attest`: evidence of GPUs and confidential VMs, verified, explained, taken apart; offline, from files. Knows no service.

Without a trust folder only the makers' roots count, by fingerprints that are in the code. Nothing is fetched.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.connection import KeyOption as OwnKeyOption
from gput.commands.connection import Session, UrlOption, with_session
from gput.commands.manners import Commands, FormatOption
from gput.output import Format, emit, show
from shared.errors import BadRequest, VerificationFailed
from shared.names import CvmRole

if TYPE_CHECKING:
    from gput.attest.judging import Judged
    from gput.attest.trust import Wish
    from gput.client import AsyncClient

app = Commands(
    "Evidence of GPUs and confidential VMs, from files: TDX quotes, SEV-SNP and GPU reports with what belongs to them.\n\n"
    "Example:  gput attest explain quote.bin collateral.json"
)


class AttestFormat(StrEnum):
    """How a verdict is printed; ear: the signed attestation result."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    EAR = "ear"


class Role(StrEnum):
    """Whose reference values count."""

    ORCHESTRATOR = "orchestrator"
    DATA_HOLDER = "data_holder"


Files = Annotated[
    list[Path],
    typer.Argument(
        help="quote, report, chain, certificates, manifests, collateral, evidence JSON, result; - is standard input"
    ),
]
TrustOption = Annotated[
    Path | None,
    typer.Option(
        "--trust", help="trust folder: roots, reference values, collateral, manifests; default: the makers' roots"
    ),
]
NonceOption = Annotated[str | None, typer.Option("--nonce", help="what the GPU was asked with: 32 bytes, hex")]
DataOption = Annotated[
    str | None, typer.Option("--report-data", help="what the quote or report must cover: 64 bytes, hex")
]
AtOption = Annotated[str | None, typer.Option("--at", help="judge as of this time, RFC 3339; default: now")]
PolicyOption = Annotated[Path | None, typer.Option("--policy", help="JSON of an evidence policy, as in a manifest")]
RoleOption = Annotated[Role | None, typer.Option("--role", help="whose reference values count, from the trust folder")]
EmulatedOption = Annotated[bool, typer.Option("--allow-emulated", help="let EMULATED roots of the trust folder count")]
GenuineOption = Annotated[
    bool,
    typer.Option(
        "--genuine-only", help="accept what is genuine and sound, even if there is nothing to compare it with"
    ),
]
VerifierOption = Annotated[
    Path | None, typer.Option("--verifier-key", help="public key (PEM) that attestation results must be signed by")
]
KeyOption = Annotated[
    Path | None, typer.Option("--key", envvar="GPUT_KEY", help="your private key file, for --format ear")
]
VerdictOption = Annotated[AttestFormat, typer.Option("--format", help="table, json, jsonl or ear")]


@app.command()
def verify(
    files: Files, trust: TrustOption = None, nonce: NonceOption = None, report_data: DataOption = None, at: AtOption = None,
    policy: PolicyOption = None, role: RoleOption = None, allow_emulated: EmulatedOption = False, genuine_only: GenuineOption = False,
    verifier_key: VerifierOption = None, key: KeyOption = None, fmt: VerdictOption = AttestFormat.TABLE,
) -> None:  # fmt: skip
    """Judge evidence: every check, then accept or refuse. Exit code 0: accepted; 4: refused; 2: unusable input.

    A check that could not be made refuses, too: say what to compare with, or --genuine-only.

    Example:  gput attest verify report.txt chain.pem driver.xml vbios.xml --nonce HEX
    """
    wish = _wish(nonce, report_data, at, policy, role, allow_emulated, genuine_only, verifier_key)
    judged = _judged(files, trust, wish)
    _print(judged, wish, fmt, key)
    for one in judged:
        if (why := one.refusal) is not None:
            raise VerificationFailed(
                f"{one.name}: {one.kind}: {why.detail}",
                code=why.code,
                expected=why.expected,
                got=why.got,
                remedy=why.remedy,
            )


@app.command()
def explain(
    files: Files, trust: TrustOption = None, nonce: NonceOption = None, report_data: DataOption = None, at: AtOption = None,
    policy: PolicyOption = None, role: RoleOption = None, allow_emulated: EmulatedOption = False, genuine_only: GenuineOption = False,
    verifier_key: VerifierOption = None, key: KeyOption = None, fmt: VerdictOption = AttestFormat.TABLE,
) -> None:  # fmt: skip
    """The same table as `verify`, and exit code 0 whatever the verdict; 2 where nothing could be read.

    Example:  gput attest explain quote.bin collateral.json --at 2025-07-04T10:16:00Z
    """
    wish = _wish(nonce, report_data, at, policy, role, allow_emulated, genuine_only, verifier_key)
    judged = _judged(files, trust, wish)
    _print(judged, wish, fmt, key)
    unread = [one for one in judged if one.unreadable]
    if len(unread) == len(judged):
        raise BadRequest(f"{unread[0].name}: {unread[0].kind}: {unread[0].unreadable}", code="malformed-evidence")


@app.command()
def inspect(files: Files, fmt: FormatOption = Format.TABLE) -> None:
    """Show what files of evidence say of themselves, field by field. Nothing is believed, nothing verified.

    Example:  gput attest inspect hcl-report.bin
    """
    from gput.attest.inspecting import fields
    from gput.attest.reading import read

    found = [{"file": piece.name, "is": piece.kind.value, **fields(piece)} for piece in read(files)]
    if fmt is Format.TABLE:
        for record in found:
            show(record, fmt)
    else:
        emit(found, (), fmt)


@app.command()
def session(
    session: Session, url: UrlOption, key: OwnKeyOption,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Show the attestation results that the orchestrator relied on in a session: the GPU's and every holder's, check by check.

    Each must be signed by the session signing key that it names; `gput receipts verify` is what judges that key's own evidence.

    Example:  gput attest session s_… --url http://localhost:7000 --key owner.pem
    """

    async def run(client: AsyncClient, name: str) -> tuple[str, list[Any]]:
        return name, await client.items(f"sessions/{name}/attestations")

    show_session(*with_session(session, url, key, run), fmt)


def show_session(session: str, items: list[dict[str, Any]], fmt: Format) -> None:
    """Print results, each after its signature held and it is about this session: only what is signed. Raises: VerificationFailed."""
    from gput.attest.relied import borne_out
    from gput.attest.table import print_checks

    found = borne_out(session, items, at=time.time())
    if fmt is not Format.TABLE:
        emit(found, (), fmt)
        return
    for one in found:
        title = f"{one['subject']}: {one['kind']}, root set {one['root_set']}, life {one['life']}"
        print_checks(title, one["checks"], f"{one['verdict']}, trust {one['status']}")


def _wish(
    nonce: str | None, report_data: str | None, at: str | None, policy: Path | None, role: Role | None,
    allow_emulated: bool, genuine_only: bool, verifier_key: Path | None,
) -> Wish:  # fmt: skip
    from gput.attest.trust import Wish, read_policy
    from shared.crypto.signing import load_public

    named: CvmRole | None = None if role is None else "orchestrator" if role is Role.ORCHESTRATOR else "data_holder"
    return Wish(
        at=time.time() if at is None else moment(at),
        nonce=_octets(nonce, 32, "--nonce"),
        report_data=_octets(report_data, 64, "--report-data"),
        role=named,
        policy=read_policy(policy) if policy else None,
        allow_emulated=allow_emulated,
        genuine_only=genuine_only,
        verifier=load_public(_file(verifier_key)) if verifier_key else None,
    )


def _judged(files: list[Path], trust: Path | None, wish: Wish) -> list[Judged]:
    from gput.attest.documents import judge
    from gput.attest.reading import read
    from gput.attest.trust import load_trust

    pieces = read(files)
    return judge(pieces, load_trust(trust, pieces, wish), wish)


def _print(judged: list[Judged], wish: Wish, fmt: AttestFormat, key: Path | None) -> None:
    from gput.attest.table import print_checks
    from shared.attestation.appraisal import check_list

    if fmt is AttestFormat.EAR:
        print(_token(judged, wish, key))
    elif fmt is AttestFormat.TABLE:
        for one in judged:
            print_checks(one.title, check_list(one.examination), one.words)
    else:
        emit([one.record for one in judged], (), Format(fmt.value))


def _token(judged: list[Judged], wish: Wish, key: Path | None) -> str:
    from dataclasses import replace

    from shared.attestation.ear import claims_set, sign_result
    from shared.crypto.signing import PartyKey

    if key is None:
        raise BadRequest(
            "an attestation result needs a signer",
            code="no-key",
            remedy="Say --key FILE.pem (`gput party init` makes one).",
        )
    found = [one.appraisal for one in judged if one.appraisal is not None]
    labels = [one.label for one in found]
    named = [
        replace(one, label=f"{one.label}:{number}" if labels.count(one.label) > 1 else one.label)
        for number, one in enumerate(found)
    ]
    about = {"verified-at": datetime.fromtimestamp(wish.at, UTC).isoformat()}
    claims = claims_set(named, build=f"gput {metadata.version('gpu-travelling')}", at=int(time.time()), about=about)
    return sign_result(claims, PartyKey.load(key))


def moment(text: str) -> float:
    """A time from its RFC 3339 text, seconds since 1970, within the years 1 to 9999 of UTC. Raises: BadRequest `bad-time`."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError
        # Verifiers make a UTC date of it again, which a zone can carry over either end of the calendar.
        return datetime.fromtimestamp(found.timestamp(), UTC).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(
            f"--at {text!r} is no time",
            code="bad-time",
            remedy="Write it with date, time and zone, for instance 2025-07-04T10:16:00Z.",
        ) from None


def _octets(text: str | None, length: int, option: str) -> bytes | None:
    try:
        found = None if text is None else bytes.fromhex(text)
    except ValueError:
        raise BadRequest(f"{option} is not hexadecimal", code="bad-hex") from None
    if found is not None and len(found) != length:
        raise BadRequest(
            f"{option} has {len(found)} bytes", code="bad-hex", expected=f"{length} bytes", got=f"{len(found)}"
        )
    return found


def _file(path: Path) -> bytes:
    from gput.attest.reading import content

    return content(path)

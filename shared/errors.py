"""The error family: whose fault, which stable code, what to do. Knows no HTTP framework and no service.

    GputError
    ├── BadRequest          the caller's input is wrong; nothing changed
    │   ├── InvalidManifest
    │   ├── InvalidProgram
    │   └── InvalidData
    ├── NotAuthenticated    no valid signature
    ├── NotPermitted        a valid caller, not allowed
    ├── NotFound
    ├── Conflict            right request, wrong time
    │   └── ProtocolViolation   out of order, out of grant, out of epoch, replayed, truncated, forged
    ├── Refused             policy or verification says no
    │   └── VerificationFailed  evidence, signature, digest or tag is not what it must be
    ├── LimitExceeded       too large, too many
    ├── Unavailable         a peer or resource is not there now; trying again may help
    ├── JobFailed           the asked-for job was run and did not succeed
    └── TimedOut            what was waited for did not come in the time given

Every error is raised in this form and translated at one door (`shared.service.problems`, the CLI's exit code).
No message may contain a secret, a key, or a byte of anybody's record.
"""

from __future__ import annotations

from typing import ClassVar


class GputError(Exception):
    """An expected failure that a person can read: what, why, what to do.

    Args:
        detail: what happened to which named thing, one sentence.
        code: stable machine-readable code, kebab-case; the class's default if absent.
        remedy: what the reader can do about it, one sentence.
        expected, got: the two sides of a failed comparison, as public text.
        retry_after_s: when trying again may help, in seconds from now; told to HTTP callers as Retry-After.
    """

    status: ClassVar[int] = 500
    default_code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    exit_code: ClassVar[int] = 5
    errors: list[dict[str, str]] | None = None
    """One entry per wrong field (`field`, `message`, …) where an error has several."""

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        remedy: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.default_code
        self.remedy = remedy
        self.expected = expected
        self.got = got
        self.retry_after_s = retry_after_s

    @property
    def advice(self) -> str:
        """What happened and what to do about it, for one line."""
        return f"{self.detail} ({self.remedy})" if self.remedy else self.detail


class BadRequest(GputError):
    status, default_code, title, exit_code = 400, "bad-request", "Bad request", 2


class InvalidManifest(BadRequest):
    status, default_code, title = 422, "invalid-manifest", "Invalid manifest"


class InvalidProgram(BadRequest):
    status, default_code, title = 422, "invalid-program", "Invalid training program"


class InvalidData(BadRequest):
    status, default_code, title = 422, "invalid-data", "Invalid data"


class NotAuthenticated(GputError):
    status, default_code, title, exit_code = 401, "not-authenticated", "Not authenticated", 4


class NotPermitted(GputError):
    status, default_code, title, exit_code = 403, "not-permitted", "Not permitted", 4


class NotFound(GputError):
    status, default_code, title, exit_code = 404, "not-found", "Not found", 2


class Conflict(GputError):
    status, default_code, title, exit_code = 409, "conflict", "Conflict", 1


class ProtocolViolation(Conflict):
    """An act out of order, grant or epoch. Raising it changes nothing."""

    default_code, title = "protocol-violation", "Protocol violation"


class Refused(GputError):
    status, default_code, title, exit_code = 403, "refused", "Refused", 4


class VerificationFailed(Refused):
    default_code, title = "verification-failed", "Verification failed"


class LimitExceeded(GputError):
    status, default_code, title, exit_code = 413, "limit-exceeded", "Limit exceeded", 2


class OutOfMemory(LimitExceeded):
    status, default_code, title = 507, "gpu-out-of-memory", "GPU out of memory"


class Unavailable(GputError):
    status, default_code, title, exit_code = 503, "unavailable", "Unavailable", 6


class TooManyRefused(Unavailable):
    status, default_code, title = 429, "too-many-refused", "Too many refused requests"


class TooManyWaits(Unavailable):
    status, default_code, title = 429, "too-many-streams", "Too many streams"


class JobFailed(GputError):
    status, default_code, title, exit_code = 500, "job-failed", "The job failed", 1


class TimedOut(GputError):
    status, default_code, title, exit_code = 504, "timed-out", "Timed out", 3


class ConfigurationError(GputError):
    """A service or command cannot start as configured."""

    status, default_code, title, exit_code = 500, "configuration", "Configuration error", 2


def may_heal(error: GputError) -> bool:
    """Whether a peer's answer says nothing of what was said to it: nobody there, a fault there, too much at once, or a signature that
    came too late or of a key that is not enrolled yet."""
    return isinstance(error, Unavailable | NotAuthenticated) or error.status >= 500


class EmulationWarning(UserWarning):
    """Shown whenever an emulated part is built: nothing emulated can be mistaken for hardware (law L10)."""


def installing(extra: str) -> str:
    """How an optional part of the installation is added, for a remedy. Never by the package's name: no index has it, and whoever took that
    name there would be asked for code. Editable, as `make setup` installs: a copy of the clone would take its place for good."""
    return f"in a clone of the repository, pip install --editable '.[{extra}]'"

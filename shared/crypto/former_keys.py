"""Keys that a key file held before: by their public halves a party still knows what it signed itself. Knows no party.

KEY.former/FINGERPRINT.pub    beside KEY.pem. Losing them loses nothing but that.
KEY.former/FINGERPRINT.pem    the private half, until whoever rotated the key removes it: that the new one counts instead was an answer's
                              word, and an answer can be forged
"""

from __future__ import annotations

from pathlib import Path

from shared.crypto.private_file import keep_owner, replace_private
from shared.crypto.signing import fingerprint, load_public, public_pem
from shared.errors import BadRequest, ConfigurationError

SUFFIX = ".former"


def keep_former(key_file: Path, public: bytes) -> None:
    """Write down a public key (raw) that `key_file` is about to hold no more. Raises: OSError."""
    _put(key_file, f"{fingerprint(public)}.pub", public_pem(public))


def keep_private(key_file: Path, public: bytes) -> None:
    """Keep all of `key_file`, which holds this key (raw public half) and is about to hold another. Raises: OSError."""
    _put(key_file, f"{fingerprint(public)}.pem", key_file.read_bytes())


def kept_private(key_file: Path) -> list[Path]:
    """Files of private halves that are kept of it, the one that was put there last at first."""
    return sorted(key_file.with_suffix(SUFFIX).glob("*.pem"), key=lambda path: path.stat().st_mtime_ns, reverse=True)


def former_keys(key_file: Path) -> dict[str, bytes]:
    """Fingerprint -> raw public key of all that it held before. Raises: ConfigurationError: a file in there is none."""
    found = {}
    for path in sorted(key_file.with_suffix(SUFFIX).glob("*.pub")):
        try:
            public = load_public(path.read_bytes())
        except (BadRequest, OSError) as error:
            raise ConfigurationError(
                f"the former key {path} cannot be used: {error}", remedy="Put it back, or remove the file."
            ) from None
        found[fingerprint(public)] = public
    return found


def _put(key_file: Path, name: str, content: bytes) -> None:
    """As whose the key file is, too: root may rotate a key for a service that is not root, and that reads this folder."""
    folder = key_file.with_suffix(SUFFIX)
    folder.mkdir(mode=0o700, exist_ok=True)
    keep_owner(folder, key_file)
    replace_private(folder / name, content)
    keep_owner(folder / name, key_file)

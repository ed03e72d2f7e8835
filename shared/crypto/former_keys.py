"""Public halves of the keys that a key file held before: by them a party still knows what it signed itself. Knows no party.

KEY.former/FINGERPRINT.pub, beside KEY.pem. Nothing is signed with them; losing them loses nothing but that.
"""

from __future__ import annotations

from pathlib import Path

from shared.crypto.private_file import replace_private
from shared.crypto.signing import fingerprint, load_public, public_pem
from shared.errors import BadRequest, ConfigurationError

SUFFIX = ".former"


def keep_former(key_file: Path, public: bytes) -> None:
    """Write down a public key (raw) that `key_file` is about to hold no more. Raises: OSError."""
    replace_private(key_file.with_suffix(SUFFIX) / f"{fingerprint(public)}.pub", public_pem(public))


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

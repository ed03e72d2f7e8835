"""Key files: whom a file may be open to, and what is refused. Knows no use of a key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shared.errors import ConfigurationError
from shared.service.key_file import make_key_file, open_to_others, read_key_file

ROOT, SERVICE = 0, 10001


@pytest.mark.parametrize(
    ("mode", "owner", "shared"),
    [
        (0o600, SERVICE, False),
        (0o400, SERVICE, False),
        (0o400, ROOT, False),
        (0o440, ROOT, False),  # a Secret's volume with fsGroup, defaultMode 0440
        (0o640, ROOT, False),
        (0o440, SERVICE, True),
        (0o640, SERVICE, True),
        (0o660, ROOT, True),
        (0o450, ROOT, True),
        (0o444, ROOT, True),
        (0o404, ROOT, True),
        (0o604, SERVICE, True),
    ],
)
def test_whom_a_file_is_open_to(mode: int, owner: int, shared: bool) -> None:
    assert open_to_others(stat.S_IFREG | mode, owner, SERVICE) is shared


def test_a_service_that_is_root_has_no_secret_handed_over_by_root() -> None:
    assert open_to_others(0o440, ROOT, ROOT)
    assert not open_to_others(0o400, ROOT, ROOT)


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sealing.key"
    key = make_key_file(path)
    assert read_key_file(path, "sealing_key_file", code="sealing-key", remedy="").reveal() == key.reveal()
    path.chmod(0o604)
    with pytest.raises(ConfigurationError, match="open to other users"):
        read_key_file(path, "sealing_key_file", code="sealing-key", remedy="")
    path.chmod(0o600)
    path.write_bytes(key.reveal()[:-1])
    with pytest.raises(ConfigurationError, match="31 bytes, not 32"):
        read_key_file(path, "sealing_key_file", code="sealing-key", remedy="")

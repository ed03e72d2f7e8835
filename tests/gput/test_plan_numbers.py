"""`gput plan` and numbers that are larger than any plan's."""

from __future__ import annotations

import pytest

from gput.__main__ import main
from tests.gput.test_plan_command import WORK

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("option", "value"), [
    ("--record-bytes", "1" + "0" * 320), ("--steps", "1" + "0" * 320), ("--records-per-step", str(2**53)),
    ("--step-ms", "inf"), ("--step-ms", "nan"), ("--overhead", "nan"),
])  # fmt: skip
def test_numbers_that_no_plan_has_are_refused(option: str, value: str, capsys: Capture) -> None:
    assert main(["plan", "--step-ms", "1", *WORK, option, value]) == 2
    told = capsys.readouterr()
    assert (told.out, option in told.err, "internal" in told.err) == ("", True, False)

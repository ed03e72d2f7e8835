"""The laws by number (design 6), each with the monitor that watches it. Knows no world and no test."""

from __future__ import annotations

from collections.abc import Callable

from tests.laws.case import Case, Checks
from tests.laws.laws_of_access import (
    law_1_one_writer_per_region_and_the_epoch_fences,
    law_2_no_grant_without_the_scrub_proof_of_the_last_use,
    law_3_fence_drain_upload_verify_train,
)
from tests.laws.laws_of_keys import law_4_no_key_and_iv_twice, law_5_a_shown_key_ends_with_its_visit
from tests.laws.laws_of_memory import (
    law_7_a_scrub_leaves_the_model_and_nothing_else,
    law_8_only_the_committed_model_goes_on,
    no_copy_of_a_model_is_left_that_was_not_committed,
)
from tests.laws.laws_of_names import law_10_nothing_emulated_passes_for_hardware
from tests.laws.laws_of_traces import (
    law_6_no_window_of_a_record_outside,
    law_9_dataset_and_model_stay_on_their_links,
    no_key_at_rest_or_on_a_wire,
)

LAWS: dict[str, Callable[[Case], Checks]] = {
    "L1": law_1_one_writer_per_region_and_the_epoch_fences,
    "L2": law_2_no_grant_without_the_scrub_proof_of_the_last_use,
    "L3": law_3_fence_drain_upload_verify_train,
    "L4": law_4_no_key_and_iv_twice,
    "L5": law_5_a_shown_key_ends_with_its_visit,
    "L6": law_6_no_window_of_a_record_outside,
    "L7": law_7_a_scrub_leaves_the_model_and_nothing_else,
    "L8": law_8_only_the_committed_model_goes_on,
    "L9": law_9_dataset_and_model_stay_on_their_links,
    "L10": law_10_nothing_emulated_passes_for_hardware,
    "keys": no_key_at_rest_or_on_a_wire,
    "copies": no_copy_of_a_model_is_left_that_was_not_committed,
}
"""And two rules that are watched in the same way: no key that opens traffic is ever at rest (design 4.5), and what law L7 lets lie in the
places for committed copies was committed."""


def broken_laws(case: Case) -> dict[str, list[str]]:
    """What does not hold, by law."""
    found = {law: monitor(case).breaches for law, monitor in LAWS.items()}
    return {law: breaches for law, breaches in found.items() if breaches}

"""Which test must fail when a defence is taken away: mutants by name, with the rows that they defend. Runs nothing.

What each patch leaves out stands in `device_mutants` and `service_mutants`. A mutant of the device is tried inside the test process; the
others in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.names import TravelMode
from tests.adversary import device_mutants as device
from tests.adversary import service_mutants as service

Remove = Callable[[pytest.MonkeyPatch], None]
AT, GPU = "tests/adversary/test_", "tests/gpu/test_gpu_"


@dataclass(frozen=True)
class Mutant:
    """`test`: path::name of a test that carries the rows' mark; `params`: its parameters, or the id of them for a service's test."""

    rows: tuple[str, ...]
    what: str
    test: str
    remove: Remove = field(repr=False)
    params: dict[str, Any] | str = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether the test is called inside this process."""
        return not isinstance(self.params, str)


def _mutant(rows: str, what: str, test: str, remove: Remove, params: dict[str, Any] | str) -> tuple[str, Mutant]:
    return remove.__name__, Mutant(tuple(rows.split()), what, test, remove, params)


SCOPED, DIRECT, PAPER = ({"mode": mode} for mode in (TravelMode.SCOPED, TravelMode.DIRECT, TravelMode.PAPER))
_ALL = (
    _mutant(
        "V02",
        "GCM tags are not looked at",
        GPU + "copies.py::test_a_fault_kills_the_grant_and_erases_what_it_wrote",
        device.tags_are_ignored,
        {"fault": "tag flipped"},
    ),
    _mutant(
        "V04",
        "no order, length, tag or closing statement is checked",
        AT + "platform_at_the_device.py::test_changed_records_publish_nothing",
        device.nothing_of_a_record_is_checked,
        PAPER | {"change": "dropped"},
    ),
    _mutant(
        "H07",
        "a chunk may have any length, its tag is not looked at",
        GPU + "copies.py::test_a_fault_kills_the_grant_and_erases_what_it_wrote",
        device.lengths_are_free,
        {"fault": "long chunk"},
    ),
    _mutant(
        "H13",
        "what a closing record counts is believed",
        AT + "holders_at_the_device.py::test_a_wrong_count_publishes_nothing",
        device.closing_counts_are_believed,
        DIRECT | {"lie": "fewer records"},
    ),
    _mutant(
        "H14",
        "membership is not proven",
        AT + "holders_at_the_device.py::test_other_records_than_the_approved_publish_nothing",
        device.membership_is_not_proven,
        SCOPED,
    ),
    _mutant("H12", "grants never expire", GPU + "copies.py::test_a_grant_expires", device.grants_never_expire, {}),
    _mutant(
        "H08",
        "a fence kills nothing",
        GPU + "copies.py::test_a_fence_kills_the_key_before_anything_is_looked_at",
        device.fences_kill_nothing,
        {},
    ),
    _mutant(
        "V11",
        "a scrub claims what it does not do",
        GPU + "regions.py::test_a_scrub_is_proven_by_reading_back",
        device.scrubs_lie,
        {},
    ),
    _mutant(
        "H01 H02",
        "a scrub clears the buffer only",
        GPU + "scrub.py::test_nothing_of_a_record_is_left_after_the_scrub",
        device.gradients_are_kept,
        {},
    ),
    _mutant(
        "O03",
        "regions are granted unscrubbed",
        AT + "platform_at_the_device.py::test_an_orchestrator_that_skips_the_scrub_gets_no_grant",
        device.regions_are_granted_unscrubbed,
        SCOPED,
    ),
    _mutant(
        "V06 V07",
        "ports are not compared",
        AT + "platform_at_the_device.py::test_a_route_gives_nobody_anything",
        device.ports_are_not_compared,
        SCOPED,
    ),
    _mutant(
        "H03 H04 H05 H06 H16 H22 C02",
        "every visit key commands the whole GPU",
        AT + "holders_at_the_device.py::test_a_visit_key_commands_nothing",
        device.every_key_commands_the_gpu,
        SCOPED,
    ),
    _mutant(
        "V03",
        "stock frames may come again",
        GPU + "paper.py::test_frames_are_bound_to_key_port_order_and_time",
        device.frames_may_come_again,
        {},
    ),
    _mutant(
        "H06",
        "nothing is swept",
        GPU + "paper.py::test_the_sweep_finds_what_was_hidden_and_reads_back_what_counts",
        device.nothing_is_swept,
        {},
    ),
    _mutant(
        "H14",
        "a published buffer is not compared again",
        GPU + "paper.py::test_data_changed_after_its_closing_record_is_not_trained_on",
        device.buffers_are_not_compared_again,
        {},
    ),
    _mutant(
        "H06",
        "neither code nor control structures are measured before a launch",
        GPU + "model_memory.py::test_a_changed_descriptor_or_program_launches_nothing",
        device.launches_measure_nothing,
        {"what": "control"},
    ),
    _mutant(
        "H20",
        "a visit may have a second grant",
        AT + "holders_at_the_device.py::test_nobody_visits_twice",
        device.visits_may_come_again,
        SCOPED,
    ),
    _mutant(
        "V14",
        "any life is the next",
        AT + "platform_at_the_device.py::test_of_two_live_orchestrators_one_is_obeyed",
        device.any_life_is_the_next,
        {},
    ),
    _mutant(
        "V21",
        "a stranger's session does not wipe memory",
        GPU + "lives.py::test_a_session_without_the_resume_secret_wipes_first",
        device.a_stranger_inherits_the_memory,
        {},
    ),
    _mutant(
        "V25",
        "any share will do",
        GPU + "direct.py::test_shares_that_were_swapped_are_refused",
        device.any_share_will_do,
        {},
    ),
    _mutant(
        "H10 C01",
        "keys are ratcheted as in the stock driver",
        AT + "platform_at_the_device.py::test_old_keys_open_nothing_of_a_later_visit",
        device.keys_are_ratcheted,
        SCOPED,
    ),
    _mutant(
        "H09 H11 C03",
        "one key for all visits, and no checks",
        AT + "holders_at_the_device.py::test_what_was_sealed_for_one_visit_opens_in_no_other",
        device.one_key_and_no_checks,
        SCOPED,
    ),
    _mutant(
        "V15",
        "quotes are not compared with what they should cover",
        "tests/attestation/test_cpu_channel.py::test_a_quote_does_not_move_to_another_signing_key",
        service.report_data_is_not_compared,
        "",
    ),
    _mutant(
        "V16",
        "the nonce in a report is not compared",
        "tests/attestation/test_gpu_verifier.py::test_another_nonce_time_or_agreement",
        service.gpu_nonces_are_not_compared,
        "",
    ),
    _mutant(
        "V08",
        "every feature flag is accepted",
        "tests/attestation/test_gpu_verifier.py::test_feature_flag",
        service.every_gpu_mode_is_accepted,
        "",
    ),
    _mutant(
        "V09",
        "the device's number is not compared",
        "tests/data_holder/test_holder_trust.py::test_another_gpu_than_the_sessions_is_refused",
        service.any_gpu_will_do,
        "",
    ),
    _mutant(
        "H19",
        "a TD's attributes are not looked at",
        "tests/attestation/test_tdx_policy.py::test_refused_attribute_bits_are_named",
        service.debuggable_machines_are_accepted,
        "",
    ),
    _mutant(
        "H18",
        "what a proof is for is not compared",
        "tests/attestation/test_channel_holder.py::test_a_holders_answer_is_for_one_offer_only",
        service.proofs_are_for_anybody,
        "",
    ),
    _mutant(
        "V23",
        "an offer's signature is not verified",
        "tests/attestation/test_channel_offers.py::test_the_signature_is_checked_before_the_key_is_touched",
        service.anybody_makes_offers,
        "",
    ),
    _mutant(
        "O01 V26",
        "nonces of requests are not remembered",
        "tests/service/test_signed_requests.py::test_replay_is_refused_also_after_a_restart",
        service.requests_may_come_again,
        "",
    ),
    _mutant(
        "V22",
        "the journal's MACs are not compared",
        "tests/service/test_journal.py::test_tampering_is_found_and_the_first_bad_row_named",
        service.rows_are_believed,
        "",
    ),
    _mutant(
        "V13",
        "what holders remember is not compared with the log",
        "tests/world/test_world_roll_back.py::test_a_database_put_back_is_refused_by_name_and_nothing_is_touched",
        service.heads_are_not_compared,
        "",
    ),
    _mutant(
        "C05 H18",
        "a machine's measurements are not compared",
        "tests/world/test_world_evidence.py::test_a_holder_with_other_code_gets_no_channel",
        service.any_code_is_accepted,
        "",
    ),
    _mutant(
        "H04",
        "read-back is not compared",
        "tests/world/test_world_integrity.py::test_a_model_changed_while_away_is_rolled_back",
        service.read_back_is_not_compared,
        "",
    ),
    _mutant(
        "H15",
        "a result is not held against the held-out records",
        "tests/sessions/test_poisoned_visits.py::test_flipped_labels_cost_less_than_two_points",
        service.every_result_is_accepted,
        "",
    ),
    _mutant(
        "V01",
        "nothing is encrypted",
        "tests/world/test_world_modes.py::test_the_same_session_gives_the_same_model",
        device.nothing_is_encrypted,
        "[paper]",
    ),
    _mutant(
        "O02",
        "a machine's measurements are not compared",
        "tests/world/test_world_evidence.py::test_an_orchestrator_with_other_code_is_refused_by_every_holder",
        service.any_orchestrator_is_accepted,
        "",
    ),
)
MUTANTS: dict[str, Mutant] = dict(_ALL)

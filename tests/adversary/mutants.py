"""Which test must fail when a defence is taken away: mutants by name, with the rows that they defend. Runs nothing.

What each patch leaves out stands in `device_mutants`, `privacy_mutants` and `service_mutants`. A mutant of the device is tried inside the
test process; the others in a process of their own.
"""

from __future__ import annotations

from shared.names import TravelMode
from tests.adversary import device_mutants as device
from tests.adversary import privacy_mutants as privacy
from tests.adversary import service_mutants as service
from tests.adversary.mutant import Mutant, named

AT, GPU = "tests/adversary/test_", "tests/gpu/test_gpu_"
SCOPED, DIRECT, PAPER = ({"mode": mode} for mode in (TravelMode.SCOPED, TravelMode.DIRECT, TravelMode.PAPER))
_ALL = (
    named(
        "V02",
        "GCM tags are not looked at",
        GPU + "copies.py::test_a_fault_kills_the_grant_and_erases_what_it_wrote",
        device.tags_are_ignored,
        {"fault": "tag flipped"},
    ),
    named(
        "V04",
        "no order, length, tag or closing statement is checked",
        AT + "platform_at_the_device.py::test_changed_records_publish_nothing",
        device.nothing_of_a_record_is_checked,
        PAPER | {"change": "dropped"},
    ),
    named(
        "H07",
        "a chunk may have any length, its tag is not looked at",
        GPU + "copies.py::test_a_fault_kills_the_grant_and_erases_what_it_wrote",
        device.lengths_are_free,
        {"fault": "long chunk"},
    ),
    named(
        "H13",
        "what a closing record counts is believed",
        AT + "holders_at_the_device.py::test_a_wrong_count_publishes_nothing",
        device.closing_counts_are_believed,
        DIRECT | {"lie": "fewer records"},
    ),
    named(
        "H14",
        "membership is not proven",
        AT + "holders_at_the_device.py::test_other_records_than_the_approved_publish_nothing",
        device.membership_is_not_proven,
        SCOPED,
    ),
    named("H12", "grants never expire", GPU + "copies.py::test_a_grant_expires", device.grants_never_expire, {}),
    named(
        "H08",
        "a fence kills nothing",
        GPU + "copies.py::test_a_fence_kills_the_key_before_anything_is_looked_at",
        device.fences_kill_nothing,
        {},
    ),
    named(
        "V11",
        "a scrub claims what it does not do",
        GPU + "regions.py::test_a_scrub_is_proven_by_reading_back",
        device.scrubs_lie,
        {},
    ),
    named(
        "H01 H02",
        "a scrub clears the buffer only",
        GPU + "scrub.py::test_nothing_of_a_record_is_left_after_the_scrub",
        device.gradients_are_kept,
        {},
    ),
    named(
        "O03",
        "regions are granted unscrubbed",
        AT + "platform_at_the_device.py::test_an_orchestrator_that_skips_the_scrub_gets_no_grant",
        device.regions_are_granted_unscrubbed,
        SCOPED,
    ),
    named(
        "V06 V07",
        "ports are not compared",
        AT + "platform_at_the_device.py::test_a_route_gives_nobody_anything",
        device.ports_are_not_compared,
        SCOPED,
    ),
    named(
        "H03 H04 H05 H06 H16 H22 C02",
        "every visit key commands the whole GPU",
        AT + "holders_at_the_device.py::test_a_visit_key_commands_nothing",
        device.every_key_commands_the_gpu,
        SCOPED,
    ),
    named(
        "V03",
        "stock frames may come again",
        GPU + "paper.py::test_frames_are_bound_to_key_port_order_and_time",
        device.frames_may_come_again,
        {},
    ),
    named(
        "H06",
        "nothing is swept",
        GPU + "paper.py::test_the_sweep_finds_what_was_hidden_and_reads_back_what_counts",
        device.nothing_is_swept,
        {},
    ),
    named(
        "H14",
        "a published buffer is not compared again",
        GPU + "paper.py::test_data_changed_after_its_closing_record_is_not_trained_on",
        device.buffers_are_not_compared_again,
        {},
    ),
    named(
        "H06",
        "neither code nor control structures are measured before a launch",
        GPU + "model_memory.py::test_a_changed_descriptor_or_program_launches_nothing",
        device.launches_measure_nothing,
        {"what": "control"},
    ),
    named(
        "H20",
        "a visit may have a second grant",
        AT + "holders_at_the_device.py::test_nobody_visits_twice",
        device.visits_may_come_again,
        SCOPED,
    ),
    named(
        "V14",
        "any life is the next",
        AT + "platform_at_the_device.py::test_of_two_live_orchestrators_one_is_obeyed",
        device.any_life_is_the_next,
        {},
    ),
    named(
        "V21",
        "a stranger's session does not wipe memory",
        GPU + "lives.py::test_a_session_without_the_resume_secret_wipes_first",
        device.a_stranger_inherits_the_memory,
        {},
    ),
    named(
        "V25",
        "any share will do",
        GPU + "direct.py::test_shares_that_were_swapped_are_refused",
        device.any_share_will_do,
        {},
    ),
    named(
        "H10 C01",
        "keys are ratcheted as in the stock driver",
        AT + "platform_at_the_device.py::test_old_keys_open_nothing_of_a_later_visit",
        device.keys_are_ratcheted,
        SCOPED,
    ),
    named(
        "H09 H11 C03",
        "one key for all visits, and no checks",
        AT + "holders_at_the_device.py::test_what_was_sealed_for_one_visit_opens_in_no_other",
        device.one_key_and_no_checks,
        SCOPED,
    ),
    named(
        "V15",
        "quotes are not compared with what they should cover",
        "tests/attestation/test_cpu_channel.py::test_a_quote_does_not_move_to_another_signing_key",
        service.report_data_is_not_compared,
        "",
    ),
    named(
        "V16",
        "the nonce in a report is not compared",
        "tests/attestation/test_gpu_verifier.py::test_another_nonce_time_or_agreement",
        service.gpu_nonces_are_not_compared,
        "",
    ),
    named(
        "V08",
        "every feature flag is accepted",
        "tests/attestation/test_gpu_verifier.py::test_feature_flag",
        service.every_gpu_mode_is_accepted,
        "",
    ),
    named(
        "V09",
        "the device's number is not compared",
        "tests/data_holder/test_holder_trust.py::test_another_gpu_than_the_sessions_is_refused",
        service.any_gpu_will_do,
        "",
    ),
    named(
        "H19",
        "a TD's attributes are not looked at",
        "tests/attestation/test_tdx_policy.py::test_refused_attribute_bits_are_named",
        service.debuggable_machines_are_accepted,
        "",
    ),
    named(
        "H18",
        "what a proof is for is not compared",
        "tests/attestation/test_channel_holder.py::test_a_holders_answer_is_for_one_offer_only",
        service.proofs_are_for_anybody,
        "",
    ),
    named(
        "V23",
        "an offer's signature is not verified",
        "tests/attestation/test_channel_offers.py::test_the_signature_is_checked_before_the_key_is_touched",
        service.anybody_makes_offers,
        "",
    ),
    named(
        "O01 V26",
        "nonces of requests are not remembered",
        "tests/service/test_signed_requests.py::test_replay_is_refused_also_after_a_restart",
        service.requests_may_come_again,
        "",
    ),
    named(
        "V22",
        "the journal's MACs are not compared",
        "tests/service/test_journal.py::test_tampering_is_found_and_the_first_bad_row_named",
        service.rows_are_believed,
        "",
    ),
    named(
        "V13",
        "what holders remember is not compared with the log",
        "tests/world/test_world_roll_back.py::test_a_database_put_back_is_refused_by_name_and_nothing_is_touched",
        service.heads_are_not_compared,
        "",
    ),
    named(
        "C05 H18",
        "a machine's measurements are not compared",
        "tests/world/test_world_evidence.py::test_a_holder_with_other_code_gets_no_channel",
        service.any_code_is_accepted,
        "",
    ),
    named(
        "H04",
        "read-back is not compared",
        "tests/world/test_world_integrity.py::test_a_model_changed_while_away_is_rolled_back",
        service.read_back_is_not_compared,
        "",
    ),
    named(
        "H15",
        "a result is not held against the held-out records",
        "tests/sessions/test_poisoned_visits.py::test_flipped_labels_cost_less_than_two_points",
        service.every_result_is_accepted,
        "",
    ),
    named(
        "V01",
        "nothing is encrypted",
        "tests/world/test_world_modes.py::test_the_same_session_gives_the_same_model",
        device.nothing_is_encrypted,
        "[paper]",
    ),
    named(
        "O02",
        "a machine's measurements are not compared",
        "tests/world/test_world_evidence.py::test_an_orchestrator_with_other_code_is_refused_by_every_holder",
        service.any_orchestrator_is_accepted,
        "",
    ),
)
MUTANTS: dict[str, Mutant] = dict((*_ALL, *privacy.TABLE))

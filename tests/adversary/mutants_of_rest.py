"""The second half of the mutants' table: what keeps records, archives and keys at rest, lives and restarts apart. Runs nothing."""

from __future__ import annotations

from tests.adversary import device_mutants as device
from tests.adversary import service_mutants as service
from tests.adversary.mutant import AT, GPU, SCOPED, named

WORLD = "tests/world/test_world_"
REST = (
    named(
        "H08 V03",
        "a fence is stated, and its keys live on",
        AT + "platform_blocks.py::test_a_write_delayed_to_any_edge_changes_nothing",
        device.fenced_keys_live_on,
        "[scoped-0]",
    ),
    named(
        "H21",
        "neither ranges nor finiteness of records are checked",
        AT + "holders_at_the_device.py::test_records_out_of_range_train_nothing",
        service.records_are_not_checked,
        "[nan-scoped]",
    ),
    named(
        "H23",
        "every operator of PyTorch is allowed",
        "tests/workload/test_program_archive.py::test_opening_hostile_archives_opens_no_file_process_or_socket",
        service.every_operator_is_allowed,
        "",
    ),
    named(
        "H25",
        "salts follow from what everybody knows",
        WORLD + "commitments.py::test_salt_and_leaves_are_for_the_gpu_alone",
        service.salts_are_known,
        "",
    ),
    named(
        "V05",
        "both directions have one key, and frames do not name theirs",
        AT + "platform_at_the_device.py::test_nothing_can_be_reflected",
        device.directions_share_a_key,
        SCOPED,
    ),
    named(
        "V10",
        "what a reset lost counts as done",
        WORLD + "crashes.py::test_gpu_wiped_in_mid_session_is_restored",
        service.lost_visits_count_as_done,
        "[2]",
    ),
    named(
        "V12",
        "neither number nor tag of a frame is checked",
        GPU + "lives.py::test_forged_truncated_and_reordered_frames_change_nothing",
        device.frames_are_taken_as_they_come,
        SCOPED,
    ),
    named(
        "V18",
        "the agent shows GPU memory to whoever asks",
        AT + "platform_in_the_world.py::test_no_interface_shows_device_memory",
        service.memory_is_shown,
        "",
    ),
    named(
        "V19",
        "a visit that a crash cut off is not repeated",
        WORLD + "crashes.py::test_orchestrator_killed",
        service.cut_off_visits_are_skipped,
        "[after-Train-orchestrator-to-agent-2]",
    ),
    named(
        "V24",
        "keys, masks and counters outlive their life",
        AT + "platform_at_the_device.py::test_a_restored_orchestrator_uses_no_iv_twice",
        device.keys_outlive_their_life,
        SCOPED,
    ),
    named(
        "C06",
        "visit keys hang on the resume secret",
        AT + "pooled_shares.py::test_all_that_shares_could_give_opens_checkpoints_and_no_visit",
        service.visit_keys_hang_on_the_resume_secret,
        "[scoped]",
    ),
    named(
        "H18",
        "nobody need sign that a party's key changes",
        "tests/orchestrator/test_party_keys.py::test_nobody_takes_anothers_name",
        service.anybody_rotates_a_key,
        "[by3-h0-body3-403-bad-signature]",
    ),
    named(
        "H18",
        "a key that an owner put in place counts as the one before it",
        "tests/orchestrator/test_party_keys.py::test_a_key_that_an_owner_put_in_place_sees_nothing_of_before",
        service.replaced_keys_are_believed,
        "",
    ),
    named(
        "O04",
        "an answer needs no signature of the attested orchestrator",
        "tests/gput/test_believed.py::test_nothing_that_the_orchestrator_did_not_sign_is_believed",
        service.whoever_answers_is_believed,
        "[not found-get]",
    ),
    named(
        "O04",
        "an answer's signature does not say to which request",
        "tests/gput/test_believed.py::test_an_answer_to_another_request_is_refused",
        service.answers_name_no_request,
        "[an earlier one of the same]",
    ),
    named(
        "O04",
        "requests that were not verified are answered under a signature, too",
        "tests/orchestrator/test_signed_answers.py::test_nothing_is_signed_for_a_request_that_was_not_verified",
        service.answers_to_anybody_are_signed,
        "",
    ),
)

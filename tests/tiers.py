"""Tests that `make test` leaves to `make test-full`, so that it keeps to its twelve minutes on two cores. Knows names, no test.

Each has a sibling in the quick tier that shows the same by another moment, mode or size; what has none is not here. Files mark
their own long parameters themselves; this is for single tests that would be the fifth of five.
"""

from __future__ import annotations

from typing import Final

LATER: Final = (
    # Real processes: the compose smoke test kills an orchestrator and a holder, the crash matrix everything else.
    "tests/processes/test_sessions.py::test_killed_in_mid_session[everything]",
    "tests/gpu/test_gpu_process.py::test_everything_dies_with_the_agent[15]",
    # An attack as people see it; tests/adversary makes each against the same services.
    "tests/gput/test_attack_tour.py::test_an_attack_ends_as_expected[fake-gpu]",
    # The same crash at another moment: tests/crash has its own sample of all cells.
    "tests/sessions/test_collected_tours.py::test_the_orchestrator_dies_inside_a_tour[after-Commit-orchestrator-to-agent-2]",
    "tests/sessions/test_tours.py::test_the_orchestrator_dies_inside_a_tour[after-EndTour-orchestrator-to-agent-2]",
    "tests/gpu/test_compute_deaths.py::test_a_parent_that_is_killed_destroys_its_launch[once it is told]",
    "tests/gpu/test_compute_deaths.py::test_a_parent_that_says_what_makes_no_sense_is_killed_and_its_launch_is_destroyed[no text]",
    "tests/gpu/test_compute_deaths.py::test_a_parent_that_says_what_makes_no_sense_is_killed_and_its_launch_is_destroyed[nothing]",
    "tests/gpu/test_compute_deaths.py::test_a_parent_that_says_what_makes_no_sense_is_killed_and_its_launch_is_destroyed[too deep]",
    "tests/gpu/test_compute_deaths.py::test_a_parent_that_says_what_makes_no_sense_is_killed_and_its_launch_is_destroyed[half of it]",
    "tests/gpu/test_device_memory.py::test_a_device_behaves_as_the_host_does[test_a_killed_compute_process_fails_the_work_and_the_gpu",
    "tests/successors/test_successor_crashes.py::test_any_process_may_die_while_a_successor_is_set_up[orchestrator-before",
    "tests/successors/test_successor_crashes.py::test_any_process_may_die_while_a_successor_is_set_up[orchestrator-after-Restore]",
    "tests/world/test_world_deaths.py::test_a_visit_whose_work_was_killed_is_repeated[parent-train]",
    "tests/world/test_world_doubts.py::test_nobody_is_refused_for_an_end_that_is_lost[resume]",
    "tests/world/test_world_doubts.py::test_nobody_is_refused_for_an_end_that_is_lost[cancel]",
    "tests/world/test_world_doubts.py::test_an_owners_word_to_a_running_session[cancel",
    "tests/world/test_world_recalls.py::test_who_vetoes_while_its_visit_is_granted_is_offered_nothing[direct-2]",
    "tests/world/test_world_recalls.py::test_who_lost_its_key_while_it_was_to_seal_ahead_is_granted_nothing[before it has its key]",
    "tests/world/test_world_roll_back.py::test_the_newest_copy_put_back_again_goes_on_to_the_same_model[False]",
    "tests/world/test_world_sealing_ahead.py::test_a_key_that_was_given_ahead_outlives_no_standstill[kill]",
    "tests/world/test_world_crashes.py::test_orchestrator_killed[after-Commit-orchestrator-to-agent-2]",
    "tests/world/test_world_crashes.py::test_orchestrator_killed[after-copy-holder-city-to-agent-2]",
    "tests/world/test_world_crashes.py::test_holder_killed[after-copy-holder-city-to-agent-1]",
    "tests/world/test_world_crashes.py::test_twice_in_a_row",
    "tests/world/test_world_damaged_checkpoints.py::test_what_was_gone_back_to_once_can_be_gone_back_to_again",
    "tests/world/test_world_damaged_checkpoints.py::test_the_best_model_before_is_released_where_its_successor_was_damaged",
    "tests/world/test_world_early_stop.py::test_whatever_dies_the_same_model_is_released",
    "tests/world/test_world_modes.py::test_killed_in_mid_visit[paper-holder before its report]",
    "tests/world/test_world_modes.py::test_killed_in_mid_visit[direct-orchestrator in training]",
    "tests/world/test_world_restarts.py::test_killed_in_the_middle_of_the_collection[orchestrator",
    "tests/world/test_world_tours.py::test_a_checkpoint_inside_a_tour_holds_its_gradients[2]",
    # The same rule in another travel mode.
    "tests/sessions/test_collected_tours.py::test_collected_tours_equal_pooled_training_on_the_same_order[direct]",
    "tests/sessions/test_tours.py::test_a_session_of_tours_equals_plain_accumulation[direct]",
    "tests/laws/test_laws_hold.py::test_laws_hold_in_every_travel_mode[paper]",
    "tests/adversary/test_platform_in_the_world.py::test_disturbed_records_change_nothing[corrupt-paper]",
    "tests/world/test_world_false_facts.py::test_a_certificate_of_an_earlier_boot_breaks_no_more_than_a_life[direct]",
    "tests/world/test_world_late_vetoes.py::test_a_veto_outweighs_the_report_before_it[paper]",
    "tests/world/test_world_late_vetoes.py::test_a_veto_outweighs_the_report_before_it[direct]",
    "tests/world/test_world_modes.py::test_records_of_several_chains_give_the_same_model[paper]",
    "tests/world/test_world_modes.py::test_records_of_several_chains_give_the_same_model[direct]",
    "tests/world/test_world_modes.py::test_records_that_share_a_request_give_the_same_model[paper]",
    "tests/world/test_world_modes.py::test_records_that_share_a_request_give_the_same_model[direct]",
    "tests/world/test_world_order.py::test_a_pause_after_the_next_grant_takes_it_back_and_the_model_is_the_same[paper]",
    "tests/world/test_world_private.py::test_what_is_spent_is_told_everywhere_alike[direct]",
    "tests/world/test_world_recalls.py::test_who_vetoes_while_its_visit_is_granted_is_offered_nothing[paper-1]",
    # Another size, length or form of the same.
    "tests/sessions/test_collected_tours.py::test_who_leaves_inside_a_tour_is_not_trained_on[north]",
    "tests/sessions/test_given_weights.py::test_weights_changed_on_disk_after_submission_fail_the_session[its end]",
    "tests/world/test_world_bad_answers.py::test_a_holder_goes_on_listening[a time to try again that is none]",
    "tests/world/test_world_bad_answers.py::test_a_session_goes_on[a problem too deep to read]",
    "tests/world/test_world_bad_keys.py::test_a_key_that_nothing_can_be_sealed_to[ml-kem half of ff]",
    "tests/world/test_world_bad_keys.py::test_a_share_that_nothing_can_be_agreed_with[none]",
    "tests/world/test_world_false_facts.py::test_one_lie_at_the_opening_of_a_life[a boot that no journal can name]",
    "tests/world/test_world_false_facts.py::test_one_lie_at_the_opening_of_a_life[a certificate that is none]",
    "tests/world/test_world_false_facts.py::test_one_lie_at_the_opening_of_a_life[no certificate]",
    "tests/world/test_world_false_facts.py::test_a_device_without_a_sound_certificate_ends_it_with_the_reason[no certificate",
    "tests/world/test_world_false_facts.py::test_one_handshake_with_somebody_elses_gpu_ends_no_session[2]",
    "tests/world/test_world_false_facts.py::test_a_stranger_who_breaks_some_handshakes_in_a_row_ends_no_session[False-5]",
    "tests/world/test_world_in_clear.py::test_one_answer_of_a_stranger_ends_no_session[platform-/mux-3-404]",
    "tests/world/test_world_in_clear.py::test_one_answer_of_a_stranger_ends_no_session[platform-/mux-3-500]",
    "tests/world/test_world_in_clear.py::test_one_answer_of_a_stranger_ends_no_session[agent-/v1/gpus/gpu-0-2-400]",
    "tests/world/test_world_in_clear.py::test_one_answer_of_a_stranger_ends_no_session[agent-/v1/gpus/gpu-0-2-500]",
    "tests/world/test_world_in_clear.py::test_one_answer_of_a_stranger_ends_no_session[agent-/spdm-1-400]",
    "tests/world/test_world_in_clear.py::test_one_answer_of_a_stranger_ends_no_session[agent-/spdm-1-404]",
    "tests/world/test_world_integrity.py::test_a_model_changed_while_away_is_rolled_back[optimiser]",
    "tests/world/test_world_integrity.py::test_a_bit_that_flips_while_the_model_is_read_out_costs_no_session[Checkpoint]",
    "tests/world/test_world_integrity.py::test_a_platform_that_lies_about_the_mux_only_costs_time[never-made]",
    "tests/world/test_world_last_check.py::test_a_check_comes_also_where_its_own_stop_is_passed_over[city-stops1]",
    "tests/world/test_world_paper.py::test_what_a_holder_overwrote_is_undone[buffer]",
    "tests/world/test_world_paper.py::test_what_a_holder_overwrote_is_undone[held-out records]",
    "tests/world/test_world_paper.py::test_a_holder_that_never_stops_is_passed_over[committed]",
    "tests/world/test_world_paper.py::test_a_holder_that_never_stops_is_passed_over[validation]",
    # The monitors of laws, each sabotaged; of those that watch a tour as they watch a visit, one goes red here, too.
    "tests/laws/test_collected_tours.py::test_the_monitor_reports[L1-fences_kill_nothing]",
    "tests/laws/test_collected_tours.py::test_the_monitor_reports[L2-scrubs_lie]",
    "tests/laws/test_collected_tours.py::test_the_monitor_reports[L3-verifies_before_the_fence]",
    "tests/laws/test_collected_tours.py::test_the_monitor_reports[L7-gradients_are_kept]",
    "tests/laws/test_collected_tours.py::test_the_monitor_reports[L8-read_back_is_not_compared]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[1-_cut]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[1-_too_many]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[0-changed]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[0-_cut]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[1-_too_large]",
    "tests/world/test_world_uncounted_ends.py::test_half_a_checkpoint_is_emptied_out_though_the_end_was_not_counted[after]",
    "tests/data_holder/test_holder_strangers.py::test_fifty_thousand_made_up_sessions_cost_one_task[channel_wanted]",
    "tests/data_holder/test_holder_strangers.py::test_fifty_thousand_made_up_sessions_cost_one_task[receipt]",
    "tests/gpu/test_engines.py::test_the_log_says_what_the_device_is_and_who_makes_digests[False-host]",
    "tests/gpu/test_gpu_process.py::test_records_that_came_twice_leave_nothing_in_the_agent_either",
    "tests/gpu/test_gpu_api.py::test_records_share_a_body_however_it_is_cut[33]",
    "tests/failures/test_away_and_back.py::test_one_clock_jumps_and_is_set_right",
    "tests/failures/test_owners_words.py::test_cancelled_at_any_moment[before-copy-holder-city-to-agent-1]",
    "tests/world/test_world_paper.py::test_what_a_holder_overwrote_is_undone[both copies]",
    "tests/world/test_world_roll_back.py::test_rows_removed_from_the_end_are_refused[ready]",
    "tests/world/test_world_standby.py::test_the_database_is_away_for_longer_than_a_lease",
)


def later(nodeid: str) -> bool:
    """Whether this test belongs to the slow tier by the table above."""
    return nodeid.startswith(LATER)

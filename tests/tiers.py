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
    # Another size or length of the same.
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[1-_cut]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[1-_too_many]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[0-changed]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[0-_cut]",
    "tests/world/test_world_damaged_checkpoints.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it[1-_too_large]",
    "tests/world/test_world_uncounted_ends.py::test_half_a_checkpoint_is_emptied_out_though_the_end_was_not_counted[after]",
    "tests/data_holder/test_holder_strangers.py::test_fifty_thousand_made_up_sessions_cost_one_task[channel_wanted]",
    "tests/data_holder/test_holder_strangers.py::test_fifty_thousand_made_up_sessions_cost_one_task[receipt]",
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

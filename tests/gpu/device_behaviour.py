"""What holds of the GPU whatever its memory is made of: the host's own tests, which a device's memory and compute are put through too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.gpu import (
    test_gpu_collected,
    test_gpu_paper_memory,
    test_gpu_private,
    test_gpu_read_back,
    test_gpu_scrub,
    test_gpu_tours,
    test_gpu_training,
)
from tests.gpu.gpu_world import World

BEHAVIOUR: Final[list[Callable[[World], None]]] = [
    test_gpu_training.test_roll_back_is_bit_for_bit_and_a_rejected_visit_can_be_closed,
    test_gpu_training.test_records_out_of_range_train_nothing,
    test_gpu_training.test_evaluation_changes_nothing_and_the_region_can_still_train,
    test_gpu_training.test_a_killed_compute_process_fails_the_work_and_the_gpu_lives_on,
    test_gpu_training.test_roll_back_ends_a_running_training,
    test_gpu_training.test_a_model_is_made_from_its_seed_inside_the_gpu,
    test_gpu_scrub.test_nothing_of_a_record_is_left_after_the_scrub,
    test_gpu_collected.test_a_tour_equals_one_visit_with_everybodys_records_in_its_order,
    test_gpu_collected.test_whose_record_is_out_of_range_is_told,
    test_gpu_tours.test_gradients_add_up_over_visits_and_one_step_ends_them,
    test_gpu_tours.test_a_dropped_tour_leaves_nothing_of_its_gradients,
    test_gpu_private.test_no_loss_over_a_holders_records_leaves_and_the_owners_own_do,
    test_gpu_read_back.test_an_older_commit_is_not_the_last_one,
    test_gpu_paper_memory.test_what_was_hidden_between_tensors_is_gone_after_the_sweep_and_breaks_nothing,
]  # fmt: skip
"""Each takes a world and leaves it fit for the next."""

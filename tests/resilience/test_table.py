"""Everything that may go wrong around a run, and which test shows what is left then."""

from __future__ import annotations

import ast

import pytest

from tests.resilience.helpers import ROOT

HERE = "tests/resilience"
JOBS, WORKER = "tests/experiments/test_jobs.py", "tests/experiments/test_worker.py"
ENDPOINT, SERVER = "tests/experiments/test_endpoint_failures.py", "tests/experiments/server/test_server_sockets.py"
TABLE = {
    "the worker of a job is killed": [
        f"{JOBS}::test_a_killed_process_makes_the_job_failed_and_everything_else_lives_on",
        "tests/app/test_e2e.py::test_a_killed_engine_process_is_said_and_can_be_started_again",
        "tests/app/test_quantization.py::test_a_killed_engine_is_said_and_can_be_resumed",
    ],
    "it is killed while it stores": [
        "tests/experiments/test_store_events.py::test_what_a_killed_writer_leaves_is_swept_and_nothing_else",
        "tests/experiments/test_store_events.py::test_a_migration_that_was_killed_loses_nothing",
        f"{HERE}/test_store_damaged.py::test_a_run_whose_deletion_was_cut_short_is_gone_after_a_sweep",
    ],
    "a waiting worker, or the holder of the engine, is killed": [
        "tests/experiments/test_lanes.py::test_a_waiter_that_was_killed_is_passed_over",
        "tests/experiments/test_lanes.py::test_a_lock_goes_with_a_killed_process",
    ],
    "the command line that follows a run is killed": [
        f"{WORKER}::test_a_run_ends_with_the_command_line_that_follows_it",
    ],
    "a rank, or a side of prefill and decode, is killed, hangs, or loses its driver": [
        "tests/core_engine/parallel/test_ranks.py::test_a_killed_rank_fails_the_step_and_gives_the_blocks_back",
        "tests/core_engine/parallel/test_ranks.py::test_ranks_in_the_middle_of_steps_end_with_a_killed_driver",
        "tests/core_engine/parallel/test_supervision.py::test_a_stopped_rank_does_not_stop_the_driver",
        "tests/core_engine/disaggregation/test_losses.py::test_a_killed_side_loses_no_request_and_no_block",
        "tests/core_engine/disaggregation/test_losses.py::test_a_side_that_hangs_is_ended_and_started_again",
        "tests/core_engine/disaggregation/test_losses.py::test_a_killed_driver_leaves_no_process_behind",
        "tests/core_engine/disaggregation/test_engine.py::test_the_shared_memory_has_no_name",
    ],
    "what was cut short goes on": [
        "tests/experiments/sweep/test_sweep.py::test_a_killed_sweep_repeats_no_finished_point",
        "tests/experiments/playbook/test_climb.py::test_a_killed_ladder_repeats_no_finished_step_and_no_finished_run",
        "tests/experiments/test_all_claims.py::test_a_cancelled_run_goes_on_after_its_last_finished_row",
        "tests/cli/test_eval.py::test_a_killed_evaluation_is_resumed_to_the_result_of_one_that_was_not",
    ],
    "memory runs out: loading, KV cache, step": [
        f"{HERE}/test_out_of_memory.py::test_memory_that_is_refused_is_one_line_wherever_it_happens",
        "tests/core_engine/parallel/test_ranks.py::test_a_cache_that_fits_nowhere_is_refused_and_the_ranks_go_on",
    ],
    "the system kills the worker for want of memory": [
        f"{HERE}/test_out_of_memory.py::test_a_worker_that_the_system_kills_for_want_of_memory_is_told",
        f"{JOBS}::test_a_kill_for_want_of_memory_is_told_from_another",
    ],
    "the disk is full: run, events, export, report": [
        f"{HERE}/test_disk_full.py::test_a_full_disk_keeps_every_run_readable",
        f"{HERE}/test_disk_full.py::test_events_that_cannot_be_written_leave_the_record_that_was_there",
        f"{HERE}/test_disk_full.py::test_a_file_is_written_whole_or_stays_as_it_was",
        "tests/experiments/test_store.py::test_a_write_the_system_refuses_leaves_the_store_intact",
        f"{HERE}/test_page.py::test_on_a_full_disk_the_runs_are_listed",
        f"{JOBS}::test_a_full_disk_still_shows_that_the_process_ended",
        f"{JOBS}::test_a_worker_that_could_not_store_its_end_is_explained",
        f"{WORKER}::test_a_live_file_is_replaced_whole_and_a_full_disk_costs_only_the_picture",
    ],
    "another process holds the store": [
        f"{HERE}/test_store_locked.py::test_runs_are_read_while_another_process_writes",
        f"{HERE}/test_store_locked.py::test_a_write_that_waits_too_long_is_one_line_and_works_again_later",
        "tests/experiments/test_store.py::test_processes_that_write_at_once_lose_nothing",
    ],
    "the store is damaged or of a newer version": [
        f"{HERE}/test_store_damaged.py::test_a_file_that_was_cut_is_told_and_left_as_it_is",
        f"{HERE}/test_store_damaged.py::test_garbage_is_told_and_left_as_it_is",
        f"{HERE}/test_store_damaged.py::test_one_damaged_run_hides_no_other",
        f"{HERE}/test_page.py::test_a_damaged_store_is_one_line_and_the_page_is_there",
        f"{HERE}/test_store_damaged.py::test_a_store_of_a_newer_version_is_refused_and_not_changed_by_a_byte",
        f"{HERE}/test_store_damaged.py::test_events_outlive_a_store_that_was_moved_away_and_put_back",
        "tests/experiments/test_store_events.py::test_a_damaged_file_is_one_line_for_its_record_and_others_are_read",
    ],
    "the clock is set": [
        f"{HERE}/test_clock.py::test_only_stamps_ask_the_wall_clock",
        f"{HERE}/test_clock.py::test_newest_first_stays_so_when_the_clock_is_set_back",
        f"{HERE}/test_clock.py::test_a_process_is_the_same_one_after_the_clock_was_set",
        f"{HERE}/test_clock.py::test_a_run_measured_while_the_clock_jumps_has_durations_that_add_up",
    ],
    "a server that is driven hangs, drips, never ends or sends garbage": [
        f"{HERE}/test_endpoint_faults.py::test_a_server_that_drips_is_given_up",
        f"{HERE}/test_endpoint_faults.py::test_an_answer_without_an_end_is_cut",
        f"{ENDPOINT}::test_each_way_to_fail_is_a_failed_request_with_its_reason",
        f"{ENDPOINT}::test_one_failure_leaves_the_others_alone",
        f"{ENDPOINT}::test_a_server_that_answers_no_warm_up_is_told_too",
    ],
    "a model's file is cut or garbage": [
        f"{HERE}/test_model_files.py::test_a_file_of_a_directory_that_is_damaged_is_one_line",
        f"{HERE}/test_model_files.py::test_garbage_in_the_head_of_a_gguf_file_is_never_a_fault_of_ours",
        f"{HERE}/test_model_files.py::test_garbage_in_the_head_of_safetensors_is_never_a_fault_of_ours",
        "tests/core_engine/test_gguf.py::test_a_file_cut_anywhere_is_refused_in_one_line",
    ],
    "the port is taken": [
        f"{SERVER}::test_a_port_that_is_taken_is_said_before_anything_is_loaded",
        "tests/cli/test_cli.py::test_a_port_in_use_is_said",
    ],
    "Ctrl-C, in every phase": [
        f"{HERE}/test_interrupts.py::test_a_comparison",
        f"{HERE}/test_interrupts.py::test_a_run_that_waits_for_its_turn",
        f"{HERE}/test_interrupts.py::test_a_second_one_ends_the_worker_at_once",
        f"{HERE}/test_interrupts.py::test_between_steps_what_is_finished_is_kept_and_goes_on",
        f"{HERE}/test_interrupts.py::test_claims_between_checks",
        f"{HERE}/test_interrupts.py::test_a_command_that_computes_in_its_own_process",
        f"{HERE}/test_interrupts.py::test_a_server_with_requests_under_way",
        f"{HERE}/test_interrupts.py::test_a_page",
        "tests/cli/test_cli.py::test_ctrl_c_cancels_the_job",
    ],
    "all of it at once, for long": ["tests/benchmarks/test_soak.py::test_a_short_soak_finds_nothing_wrong"],
}


@pytest.mark.parametrize("what", TABLE)
def test_every_test_of_the_table_is_there(what: str) -> None:
    for place in TABLE[what]:
        path, name = place.split("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in defined, place

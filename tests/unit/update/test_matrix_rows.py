"""The fault matrix of updates, row by row: what goes wrong, and the tests that play it.

A row without a test, a test that was renamed away, and a test that says it plays the matrix and stands in no
row each fail here. Rows of the message broker come with it.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
DISK = "unit/update/test_matrix_disk.py"
OPERATOR = "unit/update/test_matrix_operator.py"
TIME = "unit/update/test_matrix_time.py"
TRIAL = "unit/update/test_matrix_trial.py"
CODECS = "unit/update/test_matrix_codecs.py"
MANIFEST = "unit/update/test_matrix_manifest.py"
KEYS = "unit/trust/test_matrix_keys.py"
HTTP = "faults/test_matrix_http.py"
CANDIDATE = "faults/test_matrix_candidate.py"
ATTACKS = "unit/trust/test_trust_attacks.py"
OFFER = "unit/trust/test_trust_offer.py"
LIFE = "unit/update/test_driver_life.py"
STORIES = "unit/update/test_machine_stories.py"
CUT = "unit/update/test_driver_interrupted.py"
FETCH = "faults/test_update_http.py"
PART = "unit/update/test_part_file.py"
STORE = "unit/update/test_store.py"
PLAN = "unit/update/test_plan.py"
CRASH = "crash/test_crash_proofs.py"
SWAP = "faults/test_swap_live.py"

# Row: file → the tests in it.
ROWS: dict[str, dict[str, tuple[str, ...]]] = {
    "kill -9 of daemon, worker or both after each durable step of a delta, full, rollback, abort": {
        "crash/test_crash_updates.py": (
            "test_a_sample_of_the_updates_holds",
            "test_every_kind_of_step_of_an_update_is_cut_at",
        ),
        CRASH: ("test_a_sample_of_all_proofs_holds", "test_a_short_soak_holds"),
        "system/test_updates.py": ("test_killed_at_random_it_always_serves_again",),
        PART: ("test_after_a_restart_at_most_the_unsynced_is_fetched_again",),
        SWAP: (
            "test_a_killed_old_worker_in_the_middle_of_a_switch_leaves_the_new_one_serving",
            "test_either_worker_may_die_while_the_old_one_finishes_its_frame",
        ),
    },
    "unsynced data lost, 4 KiB torn, directory entries lost": {
        CRASH: ("test_a_sample_of_all_proofs_holds", "test_a_mistake_is_found"),
        ATTACKS: (
            "test_replay_of_an_older_repository_is_refused_whatever_was_zeroed",
            "test_torn_files_of_the_cache_are_fetched_again",
        ),
        OFFER: ("test_power_lost_at_any_step_neither_forgets_nor_blocks",),
        DISK: ("test_half_written_files_after_power_loss_are_survived",),
    },
    "kill -9 in loops of tries (power flapping)": {
        TRIAL: ("test_power_flapping_in_the_trial_rolls_back_at_the_third_start",),
        LIFE: ("test_power_cuts_in_a_trial_count_as_tries",),
        STORIES: ("test_power_flapping_in_the_trial_uses_up_the_tries",),
    },
    "ENOSPC, EDQUOT: the plan's check lies, at each kind of write": {
        DISK: ("test_enospc_and_edquot_the_check_of_the_plan_lied",),
        CUT: (
            "test_no_space_is_found_out_before_a_byte_is_fetched_and_tried_again_when_there_is",
            "test_a_disk_that_fills_up_half_way_ends_the_update_clean",
        ),
        "unit/update/test_outbox.py": ("test_a_full_disk_can_be_reported_from_the_reserve",),
    },
    "EIO of the base, of a write, of a sync; EROFS": {
        DISK: (
            "test_eio_of_the_base_takes_the_full_encoding_instead_of_the_delta",
            "test_eio_and_erofs_of_a_write_change_nothing_and_do_not_spin",
            "test_eio_of_a_sync_is_not_asked_twice",
        ),
        CUT: (
            "test_a_record_that_cannot_be_written_holds_the_update_and_not_the_box",
            "test_a_box_that_starts_on_a_read_only_disk_in_a_trial_serves_what_is_proven",
        ),
        OFFER: ("test_a_disk_that_fails_is_no_refusal_and_offers_nothing",),
    },
    "truncated, bit-flipped, oversize patch; bit flip of the base, of the store after it was verified": {
        DISK: (
            "test_a_patch_that_is_not_what_was_signed_is_never_decoded",
            "test_base_changed_after_plan_falls_back_to_full_in_the_same_cycle",
            "test_bit_flip_of_the_store_after_verify_is_never_served",
            "test_bit_flip_of_the_model_that_serves_is_found_at_the_next_start",
        ),
        STORE: ("test_a_changed_file_is_found_at_the_next_load",),
    },
    "decompression bomb, negative and overflowing offsets": {
        CODECS: ("test_fuzz_of_all_codecs_at_64_sizes_in_bounded_memory",),
        "unit/codecs/test_hostile_patches.py": (
            "test_bombs_and_mutants_stay_within_memory_and_time",
            "test_an_operation_that_reaches_outside_is_refused_before_it_runs",
            "test_flipped_bytes",
        ),
        "unit/codecs/test_decode_files.py": ("test_hostile_bsdiff4_headers_and_steps_are_refused",),
        MANIFEST: ("test_a_manifest_that_makes_no_sense_is_refused",),
    },
    "wrong base, base changed after the plan, delta for another box": {
        DISK: ("test_base_changed_after_plan_falls_back_to_full_in_the_same_cycle",),
        LIFE: (
            "test_a_delta_for_another_version_is_not_even_fetched",
            "test_a_changed_base_is_noticed_and_the_full_encoding_taken_in_the_same_cycle",
            "test_a_good_delta_with_a_wrong_result_is_caught",
        ),
        CUT: ("test_what_does_not_fit_is_rejected_before_a_byte_is_fetched",),
    },
    "replay of an older timestamp, snapshot, targets, rollout document; mix of two; removed role": {
        ATTACKS: (
            "test_replay_of_an_older_repository_is_refused_whatever_was_zeroed",
            "test_replay_is_refused_with_the_whole_cache_gone",
            "test_new_timestamp_with_an_old_snapshot",
            "test_new_snapshot_with_an_old_role",
            "test_snapshot_key_lists_an_older_role",
            "test_snapshot_lists_a_role_no_more",
            "test_older_rollout_document_under_a_newer_signature",
        ),
        KEYS: (
            "test_a_removed_role_is_refused_and_a_new_one_is_not",
            "test_stale_caches_are_ignored_and_leave_the_watermark_untouched",
        ),
        "unit/update/test_driver_published.py": (
            "test_an_old_copy_of_the_repository_is_refused_and_told_of",
        ),
    },
    "expired at each role; expires during FETCH; expired while TRIAL": {
        ATTACKS: ("test_frozen_at_each_role_once_it_expired",),
        TIME: (
            "test_expires_during_fetch_or_while_trial_and_the_update_goes_on",
            "test_expired_repository_starts_nothing_until_it_is_refreshed",
        ),
    },
    "clock at 1970, ten years ahead, jumps of a day; monotonic clock reset by a reboot": {
        ATTACKS: (
            "test_wrong_clocks_neither_block_nor_believe_what_expired",
            "test_a_clock_ahead_by_400_days_is_refused_and_poisons_nothing",
        ),
        TIME: (
            "test_clock_jumps_mid_update_and_windows_are_unaffected",
            "test_monotonic_reset_by_reboot_does_not_make_a_trial_endless",
            "test_a_clock_that_never_gets_right_blocks_no_update_for_ever",
        ),
        STORIES: ("test_trial_time_adds_up_over_restarts",),
    },
    "key rotation: timestamp, owner, root 1 to 2 to 3 while offline; below threshold; fast-forward": {
        ATTACKS: (
            "test_device_that_was_offline_over_three_roots",
            "test_root_below_the_threshold_of_the_old_keys",
            "test_fast_forward_is_recovered_from_by_new_keys",
            "test_old_roots_alone_with_keys_that_were_revoked",
        ),
        KEYS: (
            "test_root_1_to_2_to_3_while_offline_and_no_way_back",
            "test_root_2_missing_ends_the_walk_and_the_new_timestamp_is_not_believed",
            "test_owner_key_and_rollouts_key_are_rotated_and_the_old_ones_are_refused",
            "test_online_and_targets_keys_are_rotated_and_the_old_ones_are_refused",
            "test_below_threshold_is_refused_with_one_key_or_the_same_twice",
            "test_fast_forward_by_the_rollouts_key_is_recovered_from",
        ),
        TIME: (
            "test_key_rotation_in_the_middle_of_an_update_changes_nothing_for_it",
            "test_fast_forward_attack_recovery_of_a_whole_box",
        ),
    },
    "metadata server: 404, 403, 500, slow loris, redirect loop": {
        HTTP: (
            "test_metadata_server_404_on_the_next_root_is_the_end_of_the_walk",
            "test_metadata_server_that_fails_at_the_next_root_is_not_taken_for_the_end",
            "test_metadata_server_that_is_away_is_no_refusal_and_nothing_is_forgotten",
            "test_metadata_server_slowloris_is_cut_off",
            "test_http_server_that_stays_bad_ends_the_update_and_nothing_else",
        ),
        FETCH: (
            "test_other_failures_are_tried_again_with_growing_waits",
            "test_redirects_for_ever",
            "test_stalls_and_slow_loris_are_cut_off",
        ),
    },
    "HTTP server: ignores Range, wrong Content-Range, changes the ETag, 416 at the end": {
        HTTP: (
            "test_http_server_faults_are_survived_by_a_whole_update",
            "test_http_server_swaps_the_object_between_a_restart",
        ),
        FETCH: (
            "test_server_ignores_range",
            "test_wrong_content_range_is_not_used",
            "test_object_that_changes_is_never_spliced",
            "test_object_is_shorter_than_what_was_signed",
        ),
    },
    "announced twice; lower counter": {
        OPERATOR: ("test_downgrade_of_the_document_is_ignored_and_told_once",),
        STORIES: (
            "test_the_same_announcement_again_does_nothing",
            "test_an_older_document_is_ignored_and_reported_once",
        ),
    },
    "two agents; command line and network at once; a second update in the trial": {
        OPERATOR: (
            "test_two_agents_on_one_state_folder",
            "test_second_update_mid_trial_waits_and_then_installs",
            "test_import_while_an_update_is_fetched",
            "test_import_in_a_trial_leaves_the_trial_alone",
        ),
        "faults/test_update_daemon.py": ("test_a_second_agent_on_the_same_state_is_refused",),
        OFFER: ("test_a_second_process_is_told_so",),
    },
    "downgrade, validly signed": {
        OPERATOR: ("test_downgrade_validly_signed_is_refused_unless_it_is_meant",),
        STORIES: ("test_a_downgrade_needs_a_rollout_that_means_it",),
    },
    "abort at each state, and after CONFIRM": {
        OPERATOR: (
            "test_abort_at_each_state_is_answered_and_obeyed_or_refused",
            "test_abort_of_a_shadow_ends_it",
        ),
        CUT: (
            "test_an_abort_before_the_switch_changes_nothing",
            "test_an_abort_in_a_trial_rolls_back",
            "test_an_abort_after_the_end_is_answered_and_does_nothing",
        ),
    },
    "candidate: segfault at load, hang, OOM, NaN, slow x3, wrong labels, leaks, crash after 9 min": {
        CANDIDATE: (
            "test_candidate_dies_and_the_cause_is_right",
            "test_candidate_leaks_1_mb_per_request_and_is_given_up_for_memory",
            "test_candidate_that_the_kernel_kills_for_memory",
            "test_candidate_with_wrong_labels_disagrees_in_its_shadow",
        ),
        TRIAL: (
            "test_candidate_is_rolled_back_within_its_window",
            "test_candidate_that_dies_early_and_then_behaves_is_confirmed",
            "test_candidate_with_wrong_labels_is_stopped_by_its_shadow",
        ),
        "faults/test_update_driver_children.py": (
            "test_a_candidate_that_cannot_be_tried_is_condemned_over_restarts",
        ),
        LIFE: ("test_a_bad_model_is_rolled_back_by_itself_and_never_tried_again",),
        "system/test_updates.py": ("test_good_releases_stay_and_bad_ones_go_back_by_themselves",),
    },
    "the previous model is broken too": {
        DISK: ("test_previous_model_also_broken_leads_down_the_ladder",),
        STORIES: ("test_the_old_model_broken_too_leads_down_the_ladder_to_safe",),
        OPERATOR: ("test_a_box_without_a_proven_model_throws_no_bundle_away",),
    },
    "a report cannot be sent for 7 days": {
        DISK: ("test_report_cannot_be_sent_for_7_days",),
        CUT: ("test_a_report_that_cannot_be_stored_is_stored_later_and_once",),
        "unit/update/test_outbox.py": ("test_a_full_outbox_drops_the_oldest_notices_and_no_result",),
    },
    "agent upgraded or downgraded between phases (schema)": {
        OPERATOR: (
            "test_agent_downgraded_between_phases_gives_up_the_candidate",
            "test_agent_upgraded_between_phases_goes_on_without_the_offer_it_cannot_read",
        ),
        CUT: ("test_a_newer_agent_s_record_gives_up_its_candidate_and_keeps_what_is_proven",),
        "unit/update/test_machine_record.py": (
            "test_an_unknown_phase_rolls_back_when_a_candidate_was_about",
        ),
    },
    # Cases of the case book.
    "case 5: model too new for the runtime": {
        CUT: ("test_what_does_not_fit_is_rejected_before_a_byte_is_fetched",),
        PLAN: ("test_a_release_for_another_box_is_refused_before_download",),
        SWAP: ("test_case_5_a_candidate_that_does_not_load_is_given_up_and_nobody_notices",),
        MANIFEST: ("test_a_manifest_that_makes_no_sense_is_refused",),
    },
    "case 35: half-written files after power loss": {
        DISK: ("test_half_written_files_after_power_loss_are_survived",),
        OPERATOR: ("test_a_box_without_a_proven_model_throws_no_bundle_away",),
        CUT: ("test_a_lost_record_is_made_up_from_the_store", "test_a_record_that_vanished_is_a_lost_one"),
        "unit/update/test_journal.py": ("test_when_both_copies_are_bad_the_state_is_lost_and_says_why",),
    },
    "case 36: disk full": {
        DISK: ("test_enospc_and_edquot_the_check_of_the_plan_lied",),
        STORIES: ("test_no_space_is_reported_once_and_tried_again_when_space_changes",),
        PART: ("test_a_disk_without_room_is_named_before_a_byte_is_fetched",),
        "unit/update/test_journal.py": ("test_a_full_disk_does_not_keep_a_record_from_being_written",),
    },
    "case 37: update loop and rollback loop": {
        LIFE: (
            "test_a_bad_model_is_rolled_back_by_itself_and_never_tried_again",
            "test_a_release_under_a_false_label_is_refused",
        ),
        STORIES: ("test_a_failed_release_is_tried_again_when_another_rollout_names_it",),
    },
    "case 38: delta against the wrong base": {
        LIFE: (
            "test_a_changed_base_is_noticed_and_the_full_encoding_taken_in_the_same_cycle",
            "test_a_missing_full_encoding_is_one_clear_failure",
        ),
        MANIFEST: ("test_a_manifest_that_makes_no_sense_is_refused",),
    },
    "case 39: clock at 1970, certificates, expired metadata": {
        TIME: (
            "test_started_at_1970_the_window_is_waited_for_until_the_clock_is_right",
            "test_expired_repository_starts_nothing_until_it_is_refreshed",
        ),
        HTTP: ("test_http_server_with_a_renewed_certificate_is_believed_at_the_next_connection",),
        FETCH: ("test_https_of_an_unknown_authority",),
    },
    "case 40: slow links and stale caches": {
        FETCH: ("test_slow_link_that_is_reset_all_the_time",),
        KEYS: ("test_stale_caches_are_ignored_and_leave_the_watermark_untouched",),
        LIFE: ("test_a_link_that_breaks_every_few_kilobytes_gets_there",),
    },
    "case 62: a percentage that is one": {
        "unit/fleet/test_fleet_waves.py": (
            "test_nobody_at_0_and_everybody_at_100",
            "test_a_share_is_that_share",
            "test_the_devices_that_another_bucketing_lost_are_in",
            "test_a_larger_share_only_adds",
            "test_other_releases_have_other_canaries",
            "test_a_device_without_an_id_waits_for_everybody",
        ),
        MANIFEST: ("test_a_rollout_document_that_makes_no_sense_is_refused",),
    },
    "case 64: artefact for other hardware": {
        CUT: ("test_what_does_not_fit_is_rejected_before_a_byte_is_fetched",),
        OFFER: ("test_another_model_is_offered_nothing",),
        STORIES: ("test_a_release_for_other_hardware_is_not_applicable_and_said_once",),
        TRIAL: ("test_candidate_on_another_accelerator_than_production_is_refused",),
    },
}


@cache
def documented(path: Path) -> dict[str, str]:
    """The tests of a file, each with its docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_played_by_tests_that_exist(row: str) -> None:
    played = [(name, test) for name, tests in ROWS[row].items() for test in tests]
    assert played
    missing = [f"{name}::{test}" for name, test in played if test not in documented(TESTS / name)]
    assert missing == []


def test_every_test_that_plays_the_matrix_stands_in_a_row() -> None:
    listed = {(name, test) for row in ROWS.values() for name, tests in row.items() for test in tests}
    playing = {
        (str(path.relative_to(TESTS)), test)
        for path in TESTS.rglob("test_matrix_*.py")
        for test, said in documented(path).items()
        if said.startswith("Fault matrix:")
    }
    assert len(playing) > 30
    assert playing - listed == set()

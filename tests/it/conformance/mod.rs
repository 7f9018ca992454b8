//! What a client may rely on, asked of two servers: a real kube-apiserver, and the simulated one of `windrow::sim`.
//!
//! A check is an `async fn(&'static Server)`. It knows nothing of which server it talks to; where the two differ,
//! the simulated one is wrong. Each check becomes one test per server.

mod access;
mod apply;
mod binary;
mod defaults;
mod deletion;
mod discovery;
mod events;
mod fixtures;
mod kinds;
mod lists;
mod objects;
mod patch;
mod random;
mod server;
mod setup;
mod simulated;
mod status;
mod watch;

use std::future::Future;
use std::sync::LazyLock;

use tokio::runtime::Runtime;

use crate::support::controlplane::ControlPlane;
use server::Server;

/// The runtime of both servers' connections. One for all tests: a connection dies with the runtime that opened it.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());

/// The real server; `None` where this machine has none.
static REAL: LazyLock<Option<Server>> = LazyLock::new(|| {
    let plane = ControlPlane::shared()?;
    Some(RUNTIME.block_on(async {
        let server = Server::new(plane.admin().await, plane.limited().await);
        setup::define_kinds(&server).await;
        setup::limit_user(&server).await;
        server
    }))
});

/// The simulated server.
static SIMULATED: LazyLock<Option<Server>> = LazyLock::new(|| Some(RUNTIME.block_on(simulated::start())));

fn run<F: Future<Output = ()>>(server: Option<&'static Server>, check: impl FnOnce(&'static Server) -> F) {
    if let Some(server) = server {
        RUNTIME.block_on(check(server));
    }
}

#[test]
fn both_servers_answer_random_writes_alike() {
    if let (Some(real), Some(simulated)) = (REAL.as_ref(), SIMULATED.as_ref()) {
        RUNTIME.block_on(random::compare(real, simulated));
    }
}

/// The real server forgets its history by itself (tests/controlplane/run.sh); a simulated one of its own is told to.
#[test]
fn both_servers_refuse_a_chunk_that_comes_too_late() {
    RUNTIME.block_on(async {
        let (cluster, client) = simulated::served(vec![]).await;
        let simulated = Server::new(client.clone(), client);
        lists::a_late_chunk_is_refused_and_the_rest_can_be_had(&simulated, || cluster.compact()).await;
    });
    run(REAL.as_ref(), |real| lists::a_late_chunk_is_refused_and_the_rest_can_be_had(real, || {}));
}

macro_rules! checks {
    ($($group:ident { $($check:ident),* $(,)? })*) => {
        checks!(@on the_real_server REAL, $($group { $($check),* })*);
        checks!(@on the_simulated_server SIMULATED, $($group { $($check),* })*);
    };
    (@on $module:ident $server:ident, $($group:ident { $($check:ident),* })*) => {
        mod $module {
            $(mod $group {
                use crate::conformance::$group as checks;
                $(#[test] fn $check() {
                    crate::conformance::run(crate::conformance::$server.as_ref(), checks::$check);
                })*
            })*
        }
    };
}

checks! {
    discovery {
        the_version_is_told,
        health_is_ok,
        core_versions_are_listed,
        core_resources_are_described,
        groups_are_listed,
        custom_resources_are_described,
        aggregated_discovery_is_one_request,
        openapi_v3_describes_each_group,
        openapi_v2_is_there,
        an_unknown_group_is_not_found,
        an_unknown_resource_is_not_found,
    }
    objects {
        a_created_object_gets_its_metadata,
        a_generated_name_ends_in_five_characters,
        a_second_create_already_exists,
        a_missing_namespace_refuses_a_create,
        a_bad_name_is_invalid_and_says_why,
        a_create_needs_a_name,
        bad_labels_and_annotations_are_invalid,
        the_body_has_to_agree_with_the_url,
        a_body_that_is_no_object_is_a_bad_request,
        a_new_object_has_no_resource_version,
        unknown_fields_are_dropped_warned_about_or_refused,
        a_missing_object_is_not_found,
        a_stale_replacement_conflicts,
        of_two_writers_of_one_version_one_wins,
        a_replacement_without_a_version_is_unconditional_for_core_kinds_only,
        a_replacement_of_another_uid_conflicts,
        a_write_that_changes_nothing_keeps_the_version,
        the_server_keeps_its_own_metadata,
        a_dry_run_answers_and_stores_nothing,
        a_delete_answers_with_what_it_deleted,
        a_delete_may_name_what_it_means,
        options_in_the_body_of_a_delete_hide_those_of_its_url,
        a_collection_is_deleted_by_selector,
    }
    defaults {
        a_pod_is_completed,
        the_spec_of_a_pod_is_fixed,
        a_secret_stores_texts_as_base64,
        a_claim_is_completed_and_protected,
        a_volume_is_completed_and_protected,
        a_storage_class_is_completed_and_fixed,
        a_namespace_is_labelled_with_its_name,
    }
    patch {
        a_merge_patch_merges_and_null_removes,
        a_merge_patch_replaces_lists,
        a_patch_with_a_stale_version_conflicts,
        a_patch_cannot_rename,
        a_patch_to_something_invalid_is_refused,
        a_json_patch_applies_its_operations_in_order,
        a_json_patch_that_misses_is_invalid_and_changes_nothing,
        a_json_patch_may_replace_what_is_not_there,
        a_patch_of_the_wrong_shape_is_a_bad_request,
        a_strategic_patch_merges_lists_by_their_key,
        a_strategic_patch_extends_sets_and_obeys_directives,
        a_strategic_patch_deletes_from_lists_by_key,
        node_conditions_merge_by_type_and_taints_do_not,
        a_strategic_patch_of_a_custom_resource_is_an_unsupported_media_type,
        other_content_types_are_refused,
        patches_and_bodies_may_be_yaml,
    }
    apply {
        an_apply_creates_and_then_updates,
        a_field_of_another_manager_conflicts_unless_forced,
        the_same_value_is_shared_and_stays_until_nobody_wants_it,
        an_update_takes_ownership,
        an_apply_is_refused_unless_it_is_complete,
        an_apply_may_name_the_object_it_means,
        an_apply_merges_lists_of_core_kinds_by_key,
        an_apply_works_on_custom_resources,
        an_apply_leaves_no_map_of_a_custom_resource_empty,
        a_status_has_managers_of_its_own,
        a_dry_apply_stores_nothing,
        managed_fields_can_be_reset,
    }
    binary {
        a_binary_body_is_an_object,
        a_binary_delete_has_options,
        a_body_that_is_no_binary_object_is_a_bad_request,
    }
    status {
        the_status_of_a_vm_is_written_through_its_subresource_only,
        the_status_of_a_pod_is_written_through_its_subresource_only,
        a_generation_counts_changes_of_the_spec,
    }
    watch {
        a_watch_goes_on_where_a_list_ended,
        a_watch_without_a_version_begins_with_what_is_there,
        a_label_selector_turns_changes_into_arrivals_and_departures,
        a_field_selector_watches_one_object,
        an_object_that_is_being_deleted_is_modified_first,
        an_old_version_is_gone,
        bookmarks_mark_the_end_of_the_initial_events,
        initial_events_need_their_parameters,
        a_watch_can_deliver_tables,
        a_watch_ends_at_its_timeout,
        a_watch_may_cover_all_namespaces,
        a_version_that_is_none_or_not_yet_is_refused,
    }
    lists {
        a_list_is_in_name_order_and_has_a_version,
        items_of_custom_resources_carry_their_kind,
        label_selectors_select,
        field_selectors_select,
        pods_are_selected_by_node_and_phase,
        a_long_list_comes_in_chunks_of_one_version,
        a_table_has_rows_with_metadata,
        pods_have_their_columns,
        custom_resources_have_the_columns_of_their_definition,
        metadata_can_be_asked_for_alone,
    }
    deletion {
        a_finalizer_holds_the_object,
        no_finalizer_is_added_to_a_dying_object,
        a_finalizer_has_a_qualified_name,
        in_the_background_the_owner_goes_first,
        in_the_foreground_the_owner_waits,
        in_the_foreground_only_children_that_block_are_waited_for,
        an_orphan_loses_its_owner_only,
        a_child_of_nobody_is_collected,
        a_propagation_policy_has_three_values,
        a_pod_ends_within_its_grace,
        a_dying_namespace_takes_its_objects_along,
    }
    access {
        a_write_that_no_role_allows_is_forbidden,
        what_a_role_allows_goes_through,
        a_user_can_ask_what_is_allowed,
        a_method_that_a_path_does_not_have_is_refused,
        the_log_of_a_pod_that_never_ran_is_refused,
    }
    events {
        events_are_selected_by_what_they_are_about,
        an_event_lives_in_the_namespace_of_its_object,
        events_are_served_in_their_own_group_too,
    }
}

//! Ring 4: the bus on real nats-servers, one node and a cluster of three, and the in-memory server against the real
//! one.

mod archive;
mod calls;
mod conformance;
mod connect;
mod core;
mod keys;
mod log;
mod mail;
mod queue;
mod storage;
mod timer;
mod tls;
mod world;

use world::World;

/// Declares each scenario as a test on its own server.
macro_rules! on_one_node {
    ($($module:ident :: $scenario:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() -> anyhow::Result<()> {
                $module::$scenario(&mut World::one().await?).await
            }
        )*
    };
}

on_one_node! {
    log::slot_with_many_writers_has_one_winner,
    log::commit_is_read_by_a_reader_that_knows_of_it,
    log::large_commits_are_read_unchanged,
    log::commits_survive_a_restart,
    archive::page_moved_to_the_archive_is_read_as_before,
    archive::archived_session_expires,
    archive::archived_pages_are_read_after_a_restart,
    archive::state_of_fifty_megabytes_is_archived,
    queue::input_sent_twice_is_stored_once,
    queue::inbox_is_in_stream_order,
    queue::silent_holder_loses_its_item,
    queue::held_items_are_redelivered_after_a_restart,
    queue::draining_worker_returns_its_items,
    queue::item_returned_to_a_draining_worker_goes_on_before_its_last_pull_ends,
    queue::server_away_busy_worker_drains_and_nothing_waits_without_end,
    queue::item_failing_for_good_is_a_dead_letter,
    queue::slow_tenant_does_not_delay_another_on_a_real_server,
    queue::held_item_comes_again_after_another_was_cancelled,
    queue::queue_in_use_keeps_its_file,
    calls::server_dies_right_after_the_dispatch_the_session_goes_on,
    timer::timers_fire_move_and_are_cancelled,
    timer::older_timer_setting_never_replaces_a_newer_one,
    timer::overdue_timer_fires_after_a_restart,
    keys::claim_by_many_owners_has_one_winner,
    keys::key_lists_are_complete_and_sorted,
    mail::mail_is_stored_once_and_closed_once,
    mail::mailboxes_are_read_after_a_restart,
    mail::closed_mail_expires_before_an_open_one,
    core::requests_get_their_answers,
    core::reconnect_is_reported_as_a_gap,
    core::flood_of_answers_is_a_gap_for_one_subscriber_only,
}

/// A cluster takes seconds to start, so the scenarios share one, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_on_three_nodes_pass() -> anyhow::Result<()> {
    let mut world = World::three().await?;
    let world = &mut world;
    log::slot_with_many_writers_has_one_winner(world).await?;
    log::commit_is_read_by_a_reader_that_knows_of_it(world).await?;
    log::large_commits_are_read_unchanged(world).await?;
    archive::page_moved_to_the_archive_is_read_as_before(world).await?;
    archive::archived_session_expires(world).await?;
    queue::input_sent_twice_is_stored_once(world).await?;
    queue::inbox_is_in_stream_order(world).await?;
    queue::draining_worker_returns_its_items(world).await?;
    queue::item_failing_for_good_is_a_dead_letter(world).await?;
    queue::held_item_comes_again_after_another_was_cancelled(world).await?;
    timer::timers_fire_move_and_are_cancelled(world).await?;
    keys::claim_by_many_owners_has_one_winner(world).await?;
    mail::mail_is_stored_once_and_closed_once(world).await?;
    core::requests_get_their_answers(world).await?;
    mail::mailboxes_are_read_after_a_restart(world).await?;
    archive::archived_pages_are_read_after_a_restart(world).await?;
    log::commits_survive_changes_of_leader(world).await?;
    log::commits_survive_a_restart(world).await
}

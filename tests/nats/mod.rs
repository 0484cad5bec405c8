//! Ring 4: the bus on real nats-servers, one node and a cluster of three, and the in-memory server against the real one.

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
mod world;

use world::World;

/// Declares each scenario as a test on one node of its own.
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
    log::every_slot_has_one_winner,
    log::a_commit_is_seen_by_whoever_knows_of_it,
    log::large_commits_come_back_whole,
    log::commits_survive_a_restart,
    archive::a_page_leaves_the_log_and_is_read_as_before,
    archive::what_is_left_of_a_session_fades,
    archive::archived_pages_survive_a_restart,
    archive::a_state_of_fifty_megabytes_goes_along,
    queue::an_input_is_stored_once,
    queue::the_inbox_is_in_stream_order,
    queue::a_silent_holder_loses_its_item,
    queue::held_items_come_again_after_a_restart,
    queue::a_worker_that_drains_hands_back,
    queue::what_fails_for_good_is_a_dead_letter,
    queue::slow_tenant_does_not_delay_another_on_a_real_server,
    queue::item_stored_anew_is_delivered_as_new,
    calls::server_dies_right_after_the_dispatch_the_session_waits_less_than_ten_seconds,
    timer::timers_fire_move_and_stop,
    timer::an_older_setting_never_takes_the_place_of_a_newer_one,
    timer::an_overdue_timer_fires_after_a_restart,
    keys::one_owner_gets_the_claim,
    keys::lists_are_whole_and_sorted,
    mail::a_mail_is_stored_once_and_closed_once,
    mail::mailboxes_survive_a_restart,
    mail::a_closed_mail_is_forgotten_before_an_open_one,
    core::requests_find_their_answers,
    core::a_reconnect_is_a_gap,
    core::a_flood_of_answers_is_a_gap_for_nobody_else,
}

/// A cluster takes seconds to begin, so that the scenarios share one, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_nodes() -> anyhow::Result<()> {
    let mut world = World::three().await?;
    let world = &mut world;
    log::every_slot_has_one_winner(world).await?;
    log::a_commit_is_seen_by_whoever_knows_of_it(world).await?;
    log::large_commits_come_back_whole(world).await?;
    archive::a_page_leaves_the_log_and_is_read_as_before(world).await?;
    archive::what_is_left_of_a_session_fades(world).await?;
    queue::an_input_is_stored_once(world).await?;
    queue::the_inbox_is_in_stream_order(world).await?;
    queue::a_worker_that_drains_hands_back(world).await?;
    queue::what_fails_for_good_is_a_dead_letter(world).await?;
    timer::timers_fire_move_and_stop(world).await?;
    keys::one_owner_gets_the_claim(world).await?;
    mail::a_mail_is_stored_once_and_closed_once(world).await?;
    core::requests_find_their_answers(world).await?;
    mail::mailboxes_survive_a_restart(world).await?;
    archive::archived_pages_survive_a_restart(world).await?;
    log::commits_survive_changes_of_leader(world).await?;
    log::commits_survive_a_restart(world).await
}

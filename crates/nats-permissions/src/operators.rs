//! The roles of people who operate the fleet and its nats-servers, for the commands of docs/runbook/README.md.

use contract::streams::{Bucket, Stream};
use contract::subject::every;

use super::jetstream::{
    backup, consumers_look, delete_streams, keys_get, keys_put, lead, names, purge, read_key_any, read_leader, restore,
    view,
};
use super::role::{Account, Permissions, Role, inbox};
use super::services::RoleBuilder;

/// Requests about one server, or about all with `PING` in place of the server's id.
const SERVER_REPORTS: [&str; 10] =
    ["STATSZ", "VARZ", "CONNZ", "ROUTEZ", "SUBSZ", "JSZ", "ACCOUNTZ", "HEALTHZ", "RAFTZ", "IDZ"];
/// Requests about one account.
const ACCOUNT_REPORTS: [&str; 4] = ["INFO", "CONNZ", "JSZ", "STATZ"];

/// The role of an operator in the account of the services: it looks at streams and repairs them. It can restore a
/// stream, so it is as powerful as an orchestrator.
pub(super) fn admin() -> Role {
    RoleBuilder::default()
        // Look: `nats stream ls`, `info`, `view`, `nats consumer info`, `nats kv get`.
        .publish(names())
        .publish(consumers_look())
        .publish([Stream::Log, Stream::Dead].into_iter().flat_map(view))
        .publish([Stream::Log, Stream::Dead].map(read_leader))
        .publish([read_key_any(Bucket::Limits)])
        // Repair: delete a budget, empty a mailbox.
        .publish([keys_put(Bucket::Limits), purge(Stream::Mail)])
        // Move leaders and replicas of streams.
        .publish(lead())
        // Back up, with what comes meanwhile, and restore.
        .publish(backup())
        .publish([Stream::Log, Stream::Timer, Stream::Archive, Stream::Mail, Stream::Dead].map(read_leader))
        .publish([Bucket::Sessions, Bucket::Claims, Bucket::Limits].map(keys_get))
        .publish(restore())
        .role("admin", "Looks at streams, repairs, backs up and restores them: for operators.")
}

/// The role that restores a backup: the only one that deletes streams. It has no other use, so that no slip of an
/// operator deletes anything. It writes what came during the backup, and so is as powerful as an orchestrator.
pub(super) fn restorer() -> Role {
    let later = [every::log_slot(), every::archive_page(), every::timer_set(), every::mail(), every::dead()];
    RoleBuilder::default()
        .publish(delete_streams())
        .publish(restore())
        .publish(later.map(|subject| subject.to_string()))
        .publish([Bucket::Sessions, Bucket::Claims, Bucket::Limits].map(keys_put))
        .role("restorer", "Restores a backup, and deletes the streams in its way: `ailoop restore`.")
}

/// The role of an operator in the system account: it looks at servers, moves leaders, removes servers that are lost, and
/// hands the accounts that `ailoop nats-auth` signed to the servers.
pub(super) fn operator() -> Role {
    let servers = SERVER_REPORTS.map(|report| format!("$SYS.REQ.SERVER.*.{report}"));
    let accounts = ACCOUNT_REPORTS.map(|report| format!("$SYS.REQ.ACCOUNT.*.{report}"));
    let others = [
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP",
        "$SYS.REQ.CLAIMS.LIST",
        "$SYS.REQ.CLAIMS.UPDATE",
        "$JS.API.META.LEADER.STEPDOWN",
        "$JS.API.SERVER.REMOVE",
    ];
    Role {
        name: "operator",
        about: "Looks at nats-servers, moves leaders, removes lost servers, updates accounts: for operators.",
        account: Account::System,
        permissions: Permissions {
            publish: servers.into_iter().chain(accounts).chain(others.map(str::to_owned)).collect(),
            subscribe: vec![inbox("operator")],
            answers: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_roles_delete_no_stream_and_stop_nothing() {
        let (admin, operator) = (admin().permissions.publish, operator().permissions.publish);
        for subject in ["$SYS.REQ.SERVER.X.KICK", "$SYS.REQ.SERVER.X.RELOAD", "$SYS.REQ.CLAIMS.DELETE"] {
            assert!(!operator.iter().any(|allowed| contract::subject::matches(allowed, subject)), "{subject}");
        }
        for subject in ["$JS.API.STREAM.DELETE.AI_LOOP_LOG", "$JS.API.STREAM.MSG.DELETE.AI_LOOP_LOG"] {
            assert!(!admin.iter().any(|allowed| contract::subject::matches(allowed, subject)), "{subject}");
        }
    }
}

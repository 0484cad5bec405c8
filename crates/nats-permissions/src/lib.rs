//! Who may do what on the bus: one NATS user for each service, each kind of tool and each viewer, as data.
//!
//! `deploy/nats/ailoop.conf` is this, rendered; a test compares them. A service that needs a new subject gets it here.

mod clients;
mod jetstream;
mod render;
mod services;

use std::time::Duration;

use contract::subject::inbox_prefix;

pub use self::render::render;

/// The account in which everything happens: one cell.
pub const ACCOUNT: &str = "AILOOP";

/// A NATS user and exactly what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name; it also begins its inboxes, see [`User::inbox`].
    pub name: &'static str,
    /// Who that is, for people.
    pub about: &'static str,
    /// Subjects and filters that it may publish to; nothing when empty.
    pub publish: Vec<String>,
    /// Subjects and filters that it may subscribe; `<subject> <queue group>` only within that group.
    pub subscribe: Vec<String>,
    /// Whether it may answer requests that it got, whatever `publish` says.
    pub answers: Option<Answers>,
}

/// How requests may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// Messages to one request.
    pub max: u32,
    /// Time from the request to the last of them.
    pub within: Duration,
}

impl User {
    /// Where everything that this user asks for is answered; nobody else may listen there.
    pub fn inbox(&self) -> String {
        inbox(self.name)
    }

    /// The environment variable from which nats-server takes its password.
    pub fn password_variable(&self) -> String {
        format!("AILOOP_NATS_{}_PASSWORD", self.name.to_uppercase())
    }
}

/// Every user.
pub fn users() -> Vec<User> {
    let mut users = vec![services::bootstrap(), services::archivist()];
    users.extend(services::services());
    users.extend(clients::tools());
    users.extend([clients::bridge(), clients::viewer(), clients::toolsmith()]);
    users
}

/// The prefix of a user's inboxes, as `nats::connect` sets it.
fn inbox(user: &str) -> String {
    format!("{}.>", inbox_prefix(user))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use contract::subject::matches;

    use super::*;

    #[test]
    fn the_committed_configuration_is_this_one() {
        let committed = include_str!("../../../deploy/nats/ailoop.conf");
        assert!(
            committed == render(&users()),
            "deploy/nats/ailoop.conf is old: `cargo run --bin ailoop -- nats-config > deploy/nats/ailoop.conf`"
        );
    }

    #[test]
    fn nobody_may_do_everything_and_nobody_hears_anothers_answers() {
        let users = users();
        let names: BTreeSet<&str> = users.iter().map(|user| user.name).collect();
        assert_eq!(names.len(), users.len());
        for user in &users {
            let all = || user.publish.iter().chain(&user.subscribe);
            assert!(all().all(|allowed| allowed != ">" && allowed != "*" && !allowed.starts_with("$JS.API.>")));
            for other in users.iter().filter(|other| other.name != user.name) {
                let answer = other.inbox().replace('>', "x");
                assert!(all().all(|allowed| !matches(allowed, &answer)), "{} reaches {}", user.name, other.name);
            }
        }
    }
}

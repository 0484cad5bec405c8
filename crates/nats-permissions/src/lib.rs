//! The NATS users and their permissions, as data: one user for each service, each kind of tool and each viewer.
//!
//! `deploy/nats/ailoop.conf` is rendered from it, and a test compares them. A service that needs a new subject gets it
//! here.

mod clients;
mod jetstream;
mod render;
mod services;
mod user;

pub use self::render::render;
pub use self::user::{Answers, User};

/// The account of all users: one cell.
pub const ACCOUNT: &str = "AILOOP";

/// Returns the users of services, tools, viewers and operators.
pub fn users() -> Vec<User> {
    let mut users = vec![services::bootstrap(), services::archivist()];
    users.extend(services::services());
    users.extend(clients::tools());
    users.extend([clients::bridge(), clients::viewer(), clients::toolsmith()]);
    users
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use contract::subject::matches;

    use super::*;

    #[test]
    fn committed_configuration_is_the_rendered_one() {
        let committed = include_str!("../../../deploy/nats/ailoop.conf");
        assert!(
            committed == render(&users()),
            "deploy/nats/ailoop.conf is old: `cargo run --bin ailoop -- nats-config > deploy/nats/ailoop.conf`"
        );
    }

    #[test]
    fn user_no_wildcard_and_no_inbox_of_another_user_is_allowed() {
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

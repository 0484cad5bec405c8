//! Permissions of each role to publish and subscribe on the bus, as data: a role for each service, each kind of tools,
//! each viewer and each operator.
//!
//! `nats-auth` makes the accounts of nats-server and the credentials of users from it. A service that needs a new
//! subject gets it here.

mod clients;
mod jetstream;
mod operators;
mod role;
mod services;

pub use self::clients::{TOOL_CALL_DEFAULT, shipped_tools, tool};
pub use self::role::{Account, Answers, Permissions, Role};

/// Name of the account of services, tools and viewers.
pub const ACCOUNT: &str = "AILOOP";

/// Returns the roles of services, tools, viewers and operators.
pub fn roles() -> Vec<Role> {
    let mut roles = vec![services::bootstrap(), services::archivist()];
    roles.extend(services::services());
    roles.extend(clients::tools());
    roles.extend([clients::bridge(), clients::viewer(), clients::toolsmith()]);
    roles.extend([operators::admin(), operators::restorer(), operators::operator()]);
    roles
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use contract::subject::matches;

    use super::*;

    #[test]
    fn role_no_wildcard_and_no_inbox_of_another_role_is_allowed() {
        let roles = roles();
        let names: BTreeSet<&str> = roles.iter().map(|role| role.name).collect();
        assert_eq!(names.len(), roles.len());
        for role in &roles {
            let all = || role.permissions.publish.iter().chain(&role.permissions.subscribe);
            assert!(all().all(|allowed| allowed != ">" && allowed != "*" && !allowed.starts_with("$JS.API.>")));
            for other in roles.iter().filter(|other| other.name != role.name) {
                let answer = role::inbox(other.name).replace('>', "x");
                assert!(all().all(|allowed| !matches(allowed, &answer)), "{} reaches {}", role.name, other.name);
            }
        }
    }

    /// nats-server drops an entry with a queue group from a list in which another entry has `{{…}}`.
    #[test]
    fn role_has_no_templates() {
        for role in roles() {
            let all = role.permissions.publish.iter().chain(&role.permissions.subscribe);
            assert!(all.clone().all(|allowed| !allowed.contains("{{")), "{}", role.name);
        }
    }
}

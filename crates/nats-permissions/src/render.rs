//! Renders the users as a part of the configuration of nats-server.

use std::fmt::Write as _;

use super::{ACCOUNT, Answers, User};

const HEAD: &str = "\
# Who may do what. Written by `ailoop nats-config`; the source is crates/nats-permissions.
# Passwords come from the environment of nats-server. A value is read as configuration: begin it with a letter, and use
# letters and digits, or quote it within the variable.
";

/// Renders the configuration. The file of a server, which has the port, the store and the cluster, includes it.
pub fn render(users: &[User]) -> String {
    let mut text = format!("{HEAD}accounts {{\n  {ACCOUNT} {{\n    jetstream: enabled\n    users: [\n");
    for user in users {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "      # {}", user.about);
        let _ = writeln!(text, "      {{\n        user: {}", user.name);
        let _ = writeln!(text, "        password: ${}", user.password_variable());
        text += "        permissions: {\n";
        render_list(&mut text, "publish", &user.publish);
        render_list(&mut text, "subscribe", &user.subscribe);
        if let Some(Answers { max, within }) = user.answers {
            let _ = writeln!(text, "          allow_responses: {{max: {max}, expires: \"{}s\"}}", within.as_secs());
        }
        text += "        }\n      }\n";
    }
    text + "    ]\n  }\n}\n"
}

/// Renders a list of subjects. An empty one is a denial of all, since nats-server would allow everything.
fn render_list(text: &mut String, name: &str, allowed: &[String]) {
    if allowed.is_empty() {
        let _ = writeln!(text, "          {name}: {{deny: \">\"}}");
        return;
    }
    let _ = writeln!(text, "          {name}: {{allow: [");
    for subject in allowed {
        let _ = writeln!(text, "            {subject:?}");
    }
    text.push_str("          ]}\n");
}

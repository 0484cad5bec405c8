//! Names of MCP servers, and of their tools in the fleet: `mcp__<server>__<tool>`.

use std::borrow::Cow;
use std::fmt;

use contract::tool::sha256_hex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// Characters of a tool's name in the fleet.
const TOOL_NAME_MAX: usize = 64;
/// Characters of a server's name, so that enough are left for its tools.
const SERVER_NAME_MAX: usize = 32;
/// Hexadecimal digits of the hash at the end of a name that was changed or shortened, after `_`.
const HASH_DIGITS: usize = 8;

/// The name of a server in the configuration.
///
/// It has no `__` within and no `_` at its ends. So the name of a tool identifies its server, and two servers never
/// share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct ServerName(String);

impl ServerName {
    /// Returns the name of a tool of this server in the fleet; `is_taken` knows the names of the others. `None` where
    /// no name is free.
    ///
    /// Every tool-host computes the same name from the two names. Where characters were replaced and another tool has
    /// that name, and where it would be too long, it ends with a hash of the server's name for the tool.
    pub(crate) fn tool_name(&self, tool: &str, is_taken: impl Fn(&str) -> bool) -> Option<String> {
        let plain = format!("mcp__{}__{}", self.0, tool.replace(|c: char| !is_name_char(c), "_"));
        if plain.len() <= TOOL_NAME_MAX && !is_taken(&plain) {
            return Some(plain);
        }
        let digits = sha256_hex(tool.as_bytes());
        let prefix_length = plain.len().min(TOOL_NAME_MAX - HASH_DIGITS - 1);
        let hashed = format!("{}_{}", &plain[..prefix_length], &digits[..HASH_DIGITS]);
        (!is_taken(&hashed)).then_some(hashed)
    }
}

/// Whether names of servers and tools may have a character.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

impl TryFrom<String> for ServerName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let good = (1..=SERVER_NAME_MAX).contains(&name.len()) && name.chars().all(is_name_char);
        if good && !name.contains("__") && !name.starts_with('_') && !name.ends_with('_') {
            return Ok(Self(name));
        }
        Err(format!(
            "{name:?} is no name of an MCP server: 1 to {SERVER_NAME_MAX} of A-Z a-z 0-9 _ -, no _ at its ends and no two in a row"
        ))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for ServerName {
    fn schema_name() -> Cow<'static, str> {
        "server_name".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> ServerName {
        ServerName::try_from(name.to_owned()).unwrap()
    }

    #[test]
    fn tool_name_follows_from_server_and_tool_and_fits() {
        let free = |_: &str| false;
        for (given, tool, expected) in [
            ("time", "get_current_time", "mcp__time__get_current_time"),
            ("fs", "a.b/c d", "mcp__fs__a_b_c_d"),
            ("fs", "größe", "mcp__fs__gr__e"),
            ("a", "_b", "mcp__a___b"),
            (
                "s",
                "an_endless_name_of_a_tool_that_somebody_made_up_to_see_what_happens",
                "mcp__s__an_endless_name_of_a_tool_that_somebody_made_up_b3",
            ),
        ] {
            let name = server(given).tool_name(tool, free).unwrap();
            assert!(name.starts_with(&expected[..expected.len() - 2]), "{name}");
            assert!(contract::ToolName::new(&name).is_ok(), "{name}");
            assert_eq!(Some(name), server(given).tool_name(tool, free));
        }
    }

    #[test]
    fn tool_name_taken_gets_a_hash_or_is_refused() {
        let name = server("s").tool_name("a b", |name| name == "mcp__s__a_b").unwrap();
        assert!(name.starts_with("mcp__s__a_b_") && name.len() == "mcp__s__a_b_".len() + HASH_DIGITS, "{name}");
        assert_eq!(server("s").tool_name("a b", |_| true), None);
    }

    #[test]
    fn server_name_that_could_be_ambiguous_is_refused() {
        for bad in ["", "a__b", "_a", "a_", "a.b", "ä", &"x".repeat(33)] {
            assert!(ServerName::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}

//! Configuration of `http_fetch`.

use configuration::schema;
use contract::tool::ApprovalPolicy;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connect::Login;

/// Greatest timeout of one fetch in seconds.
pub(super) const TIMEOUT_MAX: u64 = 60;
/// Greatest value of `max_bytes`.
pub(super) const BODY_BYTES_MAX: usize = 32 << 20;

/// Hosts and ports that may be fetched from, and the limits of a fetch.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "fetch")]
pub struct FetchConfig {
    /// The only hosts that may be asked, `example.org` or `*.example.org`; without the list every public one, with an
    /// empty one none.
    pub allow_hosts: Option<Vec<String>>,
    /// Hosts that are never asked.
    pub deny_hosts: Vec<String>,
    /// Networks such as `10.1.0.0/16` and hosts that may be asked although they are private.
    pub allow_private: Vec<String>,
    /// Whether a person is asked before each fetch. Default: `always`, but `never` where `allow_hosts` is set: a page of a
    /// stranger can make a model send what it knows to an address of that stranger.
    #[schemars(schema_with = "schema::words_or_none::<ApprovalPolicy>")]
    pub approval: Option<ApprovalPolicy>,
    /// Ports that may be asked.
    pub ports: Vec<u16>,
    /// Bytes of a body that are read.
    #[schemars(range(min = 1, max = BODY_BYTES_MAX))]
    pub max_bytes: usize,
    /// Seconds that one fetch may take.
    #[schemars(range(min = 1, max = TIMEOUT_MAX))]
    pub timeout: u64,
    /// Value of the header `User-Agent`. Default: `ailoop/<version>`.
    pub user_agent: Option<String>,
    /// The NATS user of this tool, where users have permissions.
    pub login: Option<Login>,
}

impl FetchConfig {
    /// Whether a person is asked before each fetch.
    pub(super) fn approval(&self) -> ApprovalPolicy {
        let is_limited = self.allow_hosts.is_some();
        self.approval.unwrap_or(if is_limited { ApprovalPolicy::Never } else { ApprovalPolicy::Always })
    }
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self {
            allow_hosts: None,
            deny_hosts: Vec::new(),
            allow_private: Vec::new(),
            approval: None,
            ports: vec![80, 443],
            max_bytes: 2 << 20,
            timeout: 30,
            user_agent: None,
            login: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_of_any_host_asks_a_person_unless_the_configuration_says_otherwise() {
        for (text, expect) in [
            ("{}", ApprovalPolicy::Always),
            (r#"{"deny_hosts": ["a.example"]}"#, ApprovalPolicy::Always),
            (r#"{"allow_hosts": ["a.example"]}"#, ApprovalPolicy::Never),
            (r#"{"allow_hosts": ["a.example"], "approval": "always"}"#, ApprovalPolicy::Always),
            (r#"{"approval": "never"}"#, ApprovalPolicy::Never),
        ] {
            let config: FetchConfig = serde_json::from_str(text).unwrap();
            assert_eq!(config.approval(), expect, "{text}");
        }
    }
}

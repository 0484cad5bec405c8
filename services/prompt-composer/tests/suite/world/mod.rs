//! A directory with small files, so that a prompt can be read in one line of a test.

use std::collections::BTreeMap;

use contract::ErrorCode;
use contract::command::Features;
use contract::compose::{ComposeReply, ComposeRequest, Composed};
use contract::ids::{AgentId, TenantId};
use prompt_composer::{Catalog, ComposerConfig};
use tempfile::TempDir;

/// Agents `x` and `y`, whose features and prompt files differ.
pub(crate) const AGENTS: &str = "
default_agent: x
agents:
  x: {name: Xaver the Example, prompt_file: x.md, tools: {allow: ['*'], deny: [rm]}, features: {enable: [zoo, mailbox]}}
  y: {name: Ypsilon, prompt_file: missing.md, model: big-1, features: {disable: [continuation]}}
";
/// A model that calls several tools at once.
pub(crate) const MODELS: &str = "
providers:
  p: {kind: scripted, script: s.yaml}
models:
  big: {provider: p, multi_tool: true, max_parallel_tools: 4, prompt_variant: fam}
";

/// A directory with small files, so that a prompt can be read in one line of a test.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) config: ComposerConfig,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let config = ComposerConfig {
            config_dir: Some(dir.path().to_owned()),
            prompts_dir: Some(dir.path().join("mine")),
            ..ComposerConfig::default()
        };
        let world = Self { dir, config };
        for (name, text) in [
            ("agents.yaml", AGENTS),
            ("models.yaml", MODELS),
            ("mine/agents/x.md", "I am {{{agent_name}}} {{{what}}}.\n"),
            ("mine/shared/core.md", "\r\ncore\r\n"),
            ("mine/shared/zoo.md", "zoo"),
            ("mine/shared/ape_protocol.md", "ape"),
            ("mine/shared/continuation_protocol.md", "continuation"),
            ("mine/shared/mailbox_protocol.md", "mailbox"),
            ("mine/shared/output_format.md", "output"),
            ("mine/default.md", "default"),
        ] {
            world.write(name, text);
        }
        world
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn compose(&self, request: &ComposeRequest) -> ComposeReply {
        Catalog::read(&self.config).unwrap().compose(request)
    }

    pub(crate) fn composed(&self, request: &ComposeRequest) -> Composed {
        match self.compose(request) {
            ComposeReply::Composed(composed) => *composed,
            ComposeReply::Refused { code, message } => panic!("{code}: {message}"),
        }
    }

    pub(crate) fn expect_refusal(&self, request: &ComposeRequest) -> (ErrorCode, String) {
        match self.compose(request) {
            ComposeReply::Composed(composed) => panic!("{composed:?}"),
            ComposeReply::Refused { code, message } => (code, message),
        }
    }
}

pub(crate) fn request(agent: Option<&str>, model: Option<&str>) -> ComposeRequest {
    ComposeRequest {
        agent: agent.map(|agent| AgentId::new(agent).unwrap()),
        model: model.map(str::to_owned),
        parameters: BTreeMap::from([("what".to_owned(), "{{{agent_id}}}".to_owned())]),
        ..ComposeRequest::new(TenantId::default())
    }
}

pub(crate) fn features(enable: &[&str], disable: &[&str]) -> Features {
    let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    Features { enable: owned(enable), disable: owned(disable) }
}

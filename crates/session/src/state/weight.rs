//! Memory that the state of a session takes.

use contract::Json;

use super::{Setup, State};

impl State {
    /// Bytes of memory that it takes, about: texts that can be long are counted, and for all else there is a sum.
    pub(crate) fn weight(&self) -> usize {
        /// All that is small.
        const SMALL_BYTES: usize = 4 << 10;
        /// A parsed value or name, its share of the map or list included.
        const VALUE_BYTES: usize = 96;
        /// A tool with its definition, texts aside.
        const TOOL_BYTES: usize = 512;
        let texts = |list: &[String]| list.iter().map(|text| text.len() + 24).sum::<usize>();
        let setup = self.setup.as_deref().map_or(0, |setup| {
            let Setup { agent, parameters, features, overrides, ai_config, fallbacks, only_tools, .. } = setup;
            let over = overrides.as_ref().map_or(0, |over| {
                let lists = [&over.continuation_patterns, &over.termination_patterns];
                lists.into_iter().flatten().map(|list| texts(list)).sum()
            });
            let parameters = Json::of(&(parameters, ai_config, fallbacks));
            let settings = &agent.continuation;
            let lists = [&settings.continuation_patterns, &settings.termination_patterns, &agent.tools.allow];
            let names = texts(&features.enable) + texts(&features.disable) + only_tools.as_deref().map_or(0, texts);
            let lists: usize = lists.into_iter().map(|list| texts(list)).sum();
            parameters.get().len() + parameters.size().values * VALUE_BYTES + lists + over + names
        });
        // Each tool has its description and its definition for models.
        let tools = self.tools.resolved.tools.iter().map(|tool| {
            let words = tool.description.len() + tool.instructions.as_ref().map_or(0, String::len);
            TOOL_BYTES + 2 * (words + tool.parameters.get().len())
        });
        let sets = self.waiting.iter().filter_map(|waiting| waiting.client_tools.as_ref()).chain([&self.client_tools]);
        let brought = sets
            .flat_map(|set| &set.tools)
            .map(|tool| TOOL_BYTES + 2 * (tool.description.len() + tool.parameters.get().len()));
        let calls = self.turn.as_ref().map_or(&[][..], |turn| turn.calls()).iter();
        let arguments = calls.map(|state| {
            let changed = state.changed.as_ref().map_or(0, |changed| changed.get().len());
            changed + state.request().map_or(0, |request| request.arguments.get().len() + TOOL_BYTES)
        });
        let user_message = self.turn.as_ref().map_or(0, |turn| turn.text.len());
        let report = self.report.as_ref().map_or(0, |report| report.content.len());
        SMALL_BYTES + setup + tools.chain(brought).sum::<usize>() + arguments.sum::<usize>() + user_message + report
    }
}

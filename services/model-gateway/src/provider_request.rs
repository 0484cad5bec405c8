//! One request to a provider, as every kind of provider gets it.

use std::borrow::Cow;
use std::sync::Arc;

use contract::model::ModelItem;
use contract::settings::ModelSettings;

use crate::transcript_parts::{StoredPart, all_messages};

/// One request to a provider.
#[derive(Debug)]
pub struct ProviderRequest<'a> {
    /// Work item with the transcript and the parameters.
    pub item: &'a ModelItem,
    /// Parts of the transcript that the log has; their messages stand behind the first one of the item.
    pub parts: &'a [Arc<StoredPart>],
    /// Name of the model at the provider.
    pub upstream: &'a str,
    /// Name of the provider.
    pub provider: &'a str,
    /// Known settings of the model.
    pub settings: &'a ModelSettings,
    /// W3C trace context of the call.
    pub traceparent: Option<String>,
}

impl ProviderRequest<'_> {
    /// The item with the messages of the parts.
    pub(crate) fn whole_item(&self) -> Cow<'_, ModelItem> {
        if self.parts.is_empty() {
            return Cow::Borrowed(self.item);
        }
        let messages = all_messages(self.item, self.parts).cloned().collect();
        Cow::Owned(ModelItem { messages, ..self.item.clone() })
    }
}

/// Name of a provider and model that sign reasoning parts. No other account can read what one account signed.
pub(crate) fn signer_id(provider: &str, upstream: &str) -> String {
    format!("{provider}/{upstream}")
}

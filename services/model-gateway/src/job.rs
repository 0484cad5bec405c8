//! A model call that is being made.

use bus::call::OpenCall;
use contract::model::ModelItem;

/// A model call with its delivery.
pub(crate) type ModelJob = OpenCall<ModelItem>;

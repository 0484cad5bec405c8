//! Schemas of all that clients read: results, data of events, and errors.

use contract::event::{
    AiCutReceived, AiFullReceived, ClientCallOpened, GateOpened, SessionEnded, ToolCallResult, Topic, TurnCompleted,
    TurnStarted,
};
use contract::model::Chunk;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use crate::method::Method;
use crate::results::Problem;
use crate::schema::{definitions, results_generator};

/// Declares which type the data of an event have. Other topics have data without a schema.
macro_rules! event_data {
    ($($topic:ident: $data:ty,)*) => {
        fn add_event_data(generator: &mut SchemaGenerator) -> Map<String, Value> {
            [$((Topic::$topic.as_str().to_owned(), generator.subschema_for::<$data>().to_value()),)*]
                .into_iter()
                .collect()
        }
    };
}

event_data! {
    AiChunkReceived: Chunk,
    AiFullReceived: AiFullReceived,
    AiCutReceived: AiCutReceived,
    ToolCallWaiting: ClientCallOpened,
    ToolCallResult: ToolCallResult,
    GateOpened: GateOpened,
    TurnStarted: TurnStarted,
    TurnCompleted: TurnCompleted,
    SessionEnded: SessionEnded,
}

/// Schemas of all that clients read.
#[derive(Debug)]
pub(crate) struct ResultSchemas {
    /// Every schema by its name.
    pub(crate) definitions: Map<String, Value>,
    /// References to the schemas of the data of events, by topic.
    pub(crate) event_data: Map<String, Value>,
}

impl ResultSchemas {
    /// Collects the schemas that results, events and errors refer to.
    pub(crate) fn collect() -> Self {
        let mut generator = results_generator();
        for method in Method::ALL {
            method.add_result(&mut generator);
        }
        generator.subschema_for::<Problem<'_>>();
        let event_data = add_event_data(&mut generator);
        Self { definitions: definitions(generator), event_data }
    }
}

//! The streams, consumers and buckets, as data: `bus` creates or verifies exactly these.

use std::time::Duration;

use crate::limits;
use crate::words::words;

words! {
    /// A stream by its name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Stream {
        /// Inputs from clients and workers.
        Control = "AI_LOOP_CONTROL",
        /// Commits of the sessions that are not archived.
        Log = "AI_LOOP_LOG",
        /// Pages that left the log.
        Archive = "AI_LOOP_ARCHIVE",
        /// Model calls that wait for gateways.
        Model = "AI_LOOP_MODEL",
        /// Tool calls that wait for executors.
        Tool = "AI_LOOP_TOOL",
        /// Timers, set and due.
        Timer = "AI_LOOP_TIMER",
        /// Mail between agents and people, until it is answered.
        Mail = "AI_LOOP_MAIL",
        /// Messages that failed for good.
        Dead = "AI_LOOP_DEAD",
    }

    /// Its name on the server.
    fn name;
}

/// Storage policy of a stream: retention, and handling of a second message with the same subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Kept until acknowledged; one message per subject, a second one is refused.
    Queue,
    /// Kept until removed, or for the time that a message names; one message per subject, a second one is refused.
    Slots,
    /// Scheduled messages; the newest per subject wins.
    Schedule,
    /// Kept for a time; the newest per subject wins.
    MaxAge(Duration),
    /// As [`Kind::MaxAge`], and a message may name a shorter life of its own.
    MaxAgeWithTtl(Duration),
}

impl Stream {
    /// The subjects that it takes in.
    pub const fn subjects(self) -> &'static [&'static str] {
        match self {
            Self::Control => &["ai_loop.control.*.*.*.*"],
            Self::Log => &["ai_loop.log.*.*.*.*"],
            Self::Archive => &["ai_archive.*.*.*"],
            Self::Model => &["ai_loop.model.call.*.*.*.*"],
            Self::Tool => &["ai_loop.tool.call.*.*.*.*.*"],
            Self::Timer => &["ai_timer.set.*.*.*", "ai_timer.due.*.*.*"],
            Self::Mail => &["ai_mail.*.*.*"],
            Self::Dead => &["ai_dead.>"],
        }
    }

    /// Storage policy of the stream.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Control | Self::Model | Self::Tool => Kind::Queue,
            Self::Log => Kind::Slots,
            Self::Archive => Kind::MaxAge(limits::RETENTION),
            Self::Timer => Kind::Schedule,
            Self::Mail => Kind::MaxAgeWithTtl(limits::MAIL_AGE_MAX),
            Self::Dead => Kind::MaxAge(Duration::from_hours(30 * 24)),
        }
    }
}

words! {
    /// A durable pull consumer; one of each for the whole fleet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Queue {
        /// Inputs of sessions, for orchestrators.
        Inputs = "drive",
        /// Due timers for orchestrators.
        Timers = "due",
        /// Model calls for gateways.
        Model = "model",
        /// Tool calls for executors.
        Tool = "tool",
    }

    /// Name of the durable consumer on the server.
    fn durable;
}

impl Queue {
    /// The stream that it reads.
    pub const fn stream(self) -> Stream {
        match self {
            Self::Inputs => Stream::Control,
            Self::Timers => Stream::Timer,
            Self::Model => Stream::Model,
            Self::Tool => Stream::Tool,
        }
    }

    /// The only subjects that it takes, where the stream holds others too.
    pub const fn filter(self) -> Option<&'static str> {
        match self {
            Self::Timers => Some("ai_timer.due.*.*.*"),
            Self::Inputs | Self::Model | Self::Tool => None,
        }
    }
}

words! {
    /// A key-value bucket of the fleet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Bucket {
        /// The tool catalogue: `<tenant>.<tool>`; entries expire unless refreshed.
        Tools = "ai_loop_tools",
        /// The index for lists: `<tenant>.<session>`; never the truth. An archived session's entry goes with it. Beside
        /// it are notes of requests that a client may repeat: `<tenant>.request.<digest>.<id>`, each with a time to
        /// live.
        Sessions = "ai_loop_sessions",
        /// Claims of calls that take effect: `<tenant>.<session>.<call>.<id of the call's opening>`, create-only.
        Claims = "ai_loop_claims",
        /// State that gateways share: rates of providers' keys, and budgets.
        Limits = "ai_loop_limits",
    }

    /// Its name; the stream behind it is `KV_<name>`.
    fn name;
}

impl Bucket {
    /// Time to live of an entry; none if entries do not expire.
    pub const fn max_age(self) -> Option<Duration> {
        match self {
            Self::Tools => Some(limits::CATALOGUE_AGE_MAX),
            Self::Sessions => None,
            Self::Claims => Some(limits::CLAIM_AGE_MAX),
            // Longer than the longest period of a budget.
            Self::Limits => Some(Duration::from_hours(40 * 24)),
        }
    }
}

words! {
    /// An object store for bodies that are too large to travel inline; the id of an object is its SHA-256 in hex.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Objects {
        /// Bodies of inputs and work items; a day.
        Work = "ai_loop_work",
        /// Bodies of commits; as long as they are in the log.
        Blobs = "ai_loop_blobs",
        /// Bodies of archived pages and of what is in them; a little longer than these.
        Archive = "ai_loop_archive",
        /// Full results of tools, where the model reads only parts. Their ids follow from the call:
        /// [`crate::tool::FullResultRef::id`].
        Results = "ai_loop_results",
    }

    /// Its name; the stream behind it is `OBJ_<name>`.
    fn name;
}

impl Objects {
    /// Time to live of an object; none if objects do not expire.
    pub const fn max_age(self) -> Option<Duration> {
        match self {
            Self::Work => Some(Duration::from_hours(24)),
            Self::Blobs => None,
            Self::Archive => Some(limits::RETENTION.saturating_add(limits::RETENTION_MARGIN)),
            Self::Results => Some(limits::WHOLE_RESULT_AGE_MAX),
        }
    }
}

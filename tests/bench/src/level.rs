//! The shapes of the fleet that are measured, and the measurement of one level of load.

use crate::fixture::{FleetShape, Telemetry};
use crate::floor;
use crate::load::Measured;
use crate::nats::Durability;

/// A shape of the fleet that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Row {
    /// One of each service, in one process
    Together,
    /// Two of each service, each a process
    Apart,
    /// As together, with traces as many as by default
    Traced,
    /// As together, on a server that syncs each message
    Always,
    /// As together, on three servers that hold three copies
    Three,
    /// As three, on servers that sync each message
    ThreeAlways,
}

impl Row {
    /// Prefix of the names of its figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Together => "loop",
            Self::Apart => "loop.apart2",
            Self::Traced => "loop.traced",
            Self::Always => "loop.sync_always",
            Self::Three => "loop.r3",
            Self::ThreeAlways => "loop.r3_sync_always",
        }
    }

    /// The processes and the storage of the fleet.
    pub(crate) fn shape(self) -> FleetShape {
        let plain = FleetShape::PLAIN;
        match self {
            Self::Together => plain,
            Self::Apart => FleetShape { apart: Some(2), ..plain },
            Self::Traced => FleetShape { telemetry: Telemetry::Sampled, ..plain },
            Self::Always => FleetShape { durability: Durability::ONE.with_each_synced(), ..plain },
            Self::Three => FleetShape { durability: Durability::THREE, ..plain },
            Self::ThreeAlways => FleetShape { durability: Durability::THREE.with_each_synced(), ..plain },
        }
    }

    /// Sessions at the same time, one level each.
    pub(crate) fn levels(self) -> &'static [usize] {
        match self {
            Self::Together => &[1, 16, 128, 1_000],
            Self::Apart | Self::Traced | Self::Three | Self::ThreeAlways => &[16, 128],
            Self::Always => &[16],
        }
    }
}

/// A level of load, and its floor.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) row: Row,
    /// Measurement of the loop.
    pub(crate) measured: Measured,
    /// Measurement of as many raw messages.
    pub(crate) floor: floor::Floor,
}

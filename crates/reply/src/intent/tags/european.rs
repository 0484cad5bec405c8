//! The sections of the word files in German, French and Spanish, and what their phrases stand for.

use super::{Section, Tags};

pub(crate) const MARKS: Tags = 1 << 24;
pub(crate) const ASKS: Tags = 1 << 25;
pub(crate) const REQUESTS: Tags = 1 << 26;
pub(crate) const ANNOUNCES: Tags = 1 << 27;
pub(crate) const BEGINS: Tags = 1 << 28;
pub(crate) const WHO: Tags = 1 << 29;
pub(crate) const IDLE: Tags = 1 << 30;
pub(crate) const PAST: Tags = 1 << 31;
pub(crate) const DONE: Tags = 1 << 32;
pub(crate) const UNFINISHED: Tags = 1 << 33;
pub(crate) const SUBORDINATE: Tags = 1 << 34;
/// Bits from one language to the next.
const LANGUAGE_BITS: u32 = 11;
pub(crate) const GERMAN: u32 = 0;
pub(crate) const FRENCH: u32 = LANGUAGE_BITS;
pub(crate) const SPANISH: u32 = 2 * LANGUAGE_BITS;

/// The sections of each of the three files.
pub(crate) const SECTIONS: &[Section] = &[
    ("marks", MARKS),
    ("asks", ASKS),
    ("requests", REQUESTS),
    ("announces", ANNOUNCES),
    ("begins", BEGINS),
    ("who", WHO),
    ("idle", IDLE),
    ("past", PAST),
    ("done", DONE),
    ("unfinished", UNFINISHED),
    ("subordinate", SUBORDINATE),
];

//! The sections of `words/en.txt`, and what their phrases stand for.

use super::{Section, Tags};

pub(crate) const FUTURE: Tags = 1 << 0;
pub(crate) const ADVERBS: Tags = 1 << 1;
pub(crate) const IDLE: Tags = 1 << 2;
pub(crate) const IDLE_TOGETHER: Tags = 1 << 3;
pub(crate) const REPORT: Tags = 1 << 4;
pub(crate) const ASKS: Tags = 1 << 5;
pub(crate) const WAITS: Tags = 1 << 6;
pub(crate) const WHEN: Tags = 1 << 7;
pub(crate) const DECIDES: Tags = 1 << 8;
pub(crate) const AT_ONCE: Tags = 1 << 9;
pub(crate) const UNFINISHED: Tags = 1 << 10;
pub(crate) const DONE: Tags = 1 << 11;
pub(crate) const FINITE: Tags = 1 << 12;
pub(crate) const SUBORDINATE: Tags = 1 << 13;
pub(crate) const NO_GERUND: Tags = 1 << 14;
pub(crate) const BEHAVES: Tags = 1 << 15;
pub(crate) const NAMES_WORK: Tags = 1 << 16;
pub(crate) const LABELS: Tags = 1 << 17;
pub(crate) const STEPS: Tags = 1 << 18;
pub(crate) const INTERJECTIONS: Tags = 1 << 19;
pub(crate) const DOING: Tags = 1 << 20;
pub(crate) const RESUMES: Tags = 1 << 21;
pub(crate) const AFTERWARDS: Tags = 1 << 22;
pub(crate) const WORKS: Tags = 1 << 23;

/// The sections of `words/en.txt`.
pub(crate) const SECTIONS: &[Section] = &[
    ("future", FUTURE),
    ("adverbs", ADVERBS),
    ("idle", IDLE),
    ("idle_together", IDLE_TOGETHER),
    ("tell", REPORT),
    ("asks", ASKS),
    ("waits", WAITS),
    ("when", WHEN),
    ("decides", DECIDES),
    ("at_once", AT_ONCE),
    ("unfinished", UNFINISHED),
    ("done", DONE),
    ("finite", FINITE),
    ("subordinate", SUBORDINATE),
    ("no_gerund", NO_GERUND),
    ("behaves", BEHAVES),
    ("names_work", NAMES_WORK),
    ("labels", LABELS),
    ("steps", STEPS),
    ("interjections", INTERJECTIONS),
    ("doing", DOING),
    ("resumes", RESUMES),
    ("afterwards", AFTERWARDS),
    ("works", WORKS),
];

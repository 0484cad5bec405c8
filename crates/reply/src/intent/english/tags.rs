//! The sections of `words/en.txt`, and what their phrases stand for.

use crate::intent::tags::{Section, Tags};

pub(super) const FUTURE: Tags = 1 << 0;
pub(super) const ADVERBS: Tags = 1 << 1;
pub(super) const IDLE: Tags = 1 << 2;
pub(super) const IDLE_TOGETHER: Tags = 1 << 3;
pub(super) const REPORT: Tags = 1 << 4;
pub(super) const ASKS: Tags = 1 << 5;
pub(super) const WAITS: Tags = 1 << 6;
pub(super) const WHEN: Tags = 1 << 7;
pub(super) const DECIDES: Tags = 1 << 8;
pub(super) const AT_ONCE: Tags = 1 << 9;
pub(super) const UNFINISHED: Tags = 1 << 10;
pub(super) const DONE: Tags = 1 << 11;
pub(super) const FINITE: Tags = 1 << 12;
pub(super) const SUBORDINATE: Tags = 1 << 13;
pub(super) const NO_GERUND: Tags = 1 << 14;
pub(super) const BEHAVES: Tags = 1 << 15;
pub(super) const NAMES_WORK: Tags = 1 << 16;
pub(super) const LABELS: Tags = 1 << 17;
pub(super) const STEPS: Tags = 1 << 18;
pub(super) const INTERJECTIONS: Tags = 1 << 19;
pub(super) const DOING: Tags = 1 << 20;
pub(super) const RESUMES: Tags = 1 << 21;
pub(super) const AFTERWARDS: Tags = 1 << 22;
pub(super) const WORKS: Tags = 1 << 23;

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

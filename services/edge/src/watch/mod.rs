//! Watching a session: the log from a cursor on, then live, in order and without holes.

pub(crate) mod feed;
pub(crate) mod merger;
pub(crate) mod notice;
mod pages;
pub(crate) mod viewer;

#[cfg(test)]
mod merger_tests;

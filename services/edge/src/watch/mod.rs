//! Watching a session: the log from a cursor on, then live, in order and without holes.

pub mod feed;
pub mod merger;
pub mod notice;
mod pages;
pub mod viewer;

#[cfg(test)]
mod merger_tests;

//! An interactive session at a terminal. Only [`screen`], [`input`] and [`history`] do IO.

pub(crate) mod gate_menu;
mod gate_view;
pub(crate) mod history;
pub(crate) mod input;
pub(crate) mod line_editor;
pub(crate) mod plan_view;
pub(crate) mod screen;
pub(crate) mod slash_command;
pub(crate) mod status_line;

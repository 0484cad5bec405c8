//! An interactive session at a terminal. Only [`screen`], [`input`] and `history` do IO.

pub mod gate_menu;
mod gate_view;
mod history;
pub mod input;
mod line_editor;
pub mod plan_view;
pub mod screen;
pub mod slash_command;
pub mod status_line;

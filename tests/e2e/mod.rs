//! Ring 5: the whole fleet through its public interfaces: the command, the client API, tools and models.

mod backup;
mod bad_input;
mod control;
mod delegate;
mod erase;
mod events;
mod example;
mod failures;
mod gates;
mod judged;
mod kills;
mod language;
mod look;
mod mail;
mod providers;
mod python_tool;
mod reload;
mod resume;
mod scenarios;
mod storage;
mod survey;
mod tool_hosts;
mod tools;
mod trace;
mod workspace;

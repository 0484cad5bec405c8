//! The effects of a decision: items for workers, timers, and commands to children.

use contract::ids::{CallAttempt, CallId};
use contract::model::ModelItem;
use contract::tool::Outcome;
use session::SessionEffect;

use crate::ensure::ensure;
use crate::oracle::check_request;
use crate::planted_bug::PlantedBug;
use crate::world::state::{Action, Item, World};

impl World {
    pub(super) fn perform(&mut self, replica: usize, effects: &[SessionEffect]) -> Result<(), String> {
        for effect in effects {
            match effect {
                SessionEffect::CallModel(call) => {
                    let Some(item) = self.replicas[replica].model_item(call) else { continue };
                    check_request(&item.messages)?;
                    self.check_turn_messages(&item)?;
                    self.oracle.check_model_item(&item)?;
                    self.check_opener(&call.call, &item.opened_by)?;
                    self.publish(replica, call, item.meta.slot);
                }
                SessionEffect::CallTool(call) => {
                    let Some(item) = self.replicas[replica].tool_item(call) else { continue };
                    self.oracle.check_tool_item(&item)?;
                    self.check_opener(&call.call, &item.opened_by)?;
                    self.publish(replica, call, item.meta.slot);
                }
                SessionEffect::Cancel { call, tool } => {
                    self.stored_items.remove(&call.to_string());
                    if self.running.contains(&call.to_string()) && !self.fault(10) {
                        match tool {
                            None => self.end_model(call, 0, true),
                            Some(_) => self.end_tool(call, 0, Outcome::Cancelled),
                        }
                    }
                }
                SessionEffect::SetTimer { number, at } => {
                    self.timer = Some(*number);
                    let delay = at.as_millis().saturating_sub(self.now) + self.rng.below(20);
                    self.at(delay, Action::Timer(*number));
                }
                SessionEffect::StartChild(call) => {
                    let Some(command) = self.replicas[replica].child_start(call) else { continue };
                    let Some(parent) = command.body.body.parent else { return Err("a child without a parent".into()) };
                    let delay = self.child_command_delay();
                    self.at(delay, Action::StartChild { call: parent.call, slot: parent.slot });
                }
                SessionEffect::CommandChild(call) => {
                    let Some(command) = self.replicas[replica].child_command(call) else { continue };
                    let number = command.body.meta.parent_command_number.unwrap_or(0);
                    let (delay, verb) = (self.child_command_delay(), command.verb);
                    self.at(delay, Action::CommandChild { call: call.clone(), number, verb });
                }
                SessionEffect::ReportToParent => return Err("the session reports to a parent, and has none".to_owned()),
                SessionEffect::CancelTimer => self.timer = None,
                SessionEffect::Index | SessionEffect::Archive { .. } => {}
            }
        }
        Ok(())
    }

    /// Stores the item of a call where none waits. After a resume it replaces the one that waits.
    fn publish(&mut self, replica: usize, call: &CallAttempt, slot: u64) {
        let replaces = self.replicas[replica].was_resumed_after(slot) && self.bug != PlantedBug::LeaveParked;
        if self.stored_items.contains_key(&call.to_string()) && !replaces {
            return;
        }
        self.items += 1;
        let (number, delay) = (self.items, self.rng.below(50));
        self.stored_items.insert(call.to_string(), number);
        let delivery = if replaces { 2 } else { 1 };
        self.at(delay, Action::Start(Item { call: call.clone(), slot, number, delivery }));
    }

    /// Checks that all items of a call name the same commit, whichever replica publishes them, and for whichever attempt.
    fn check_opener(&mut self, call: &CallId, opened_by: &str) -> Result<(), String> {
        let named = self.openers.entry(call.to_string()).or_insert_with(|| opened_by.to_owned());
        ensure!(*named == opened_by && !opened_by.is_empty(), "items of {call} name {named:?} and {opened_by:?}");
        Ok(())
    }

    /// Delay of a command to a child; a slow sender lets a later command overtake.
    pub(super) fn child_command_delay(&mut self) -> u64 {
        if self.fault(10) { self.rng.below(8_000) } else { self.rng.below(20) }
    }

    /// Checks that the user's messages of the turn are not pruned.
    pub(super) fn check_turn_messages(&self, item: &ModelItem) -> Result<(), String> {
        if item.meta.call.as_str().starts_with(['s', 'j']) {
            return Ok(());
        }
        for message_id in self.turn_messages.get(&item.meta.turn).into_iter().flatten() {
            let text = format!("\"message {}\"", message_id.as_str().trim_start_matches('u'));
            let reads = item.messages.iter().any(|message| message.get().contains(&text));
            ensure!(reads, "the request lacks {text}, which turn {} began with", item.meta.turn);
        }
        Ok(())
    }
}

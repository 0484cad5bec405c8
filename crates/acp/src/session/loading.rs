//! Sessions that exist already, and their settings.

use contract::ErrorCode;
use fleet_connection::client::{SessionsApi, command_id, request_of};
use fleet_connection::stream::SessionStream;
use proto::GetSessionRequest;
use serde_json::{Value, json};

use super::super::settings::{Choices, SettingName};
use super::super::translate::Translator;
use super::super::update::SessionUpdate;
use super::super::wire::RpcError;
use super::worker::{Life, PendingLoad, Phase, SessionWorker};

impl SessionWorker {
    /// Begins to read the session from its beginning. A session that does not exist has no worker.
    pub(super) async fn begin_load(&mut self, id: Value, is_shown: bool) -> Life {
        if self.prompt.is_some() || self.load.is_some() {
            let error = RpcError::new(ErrorCode::NotNow, "the session is in use; wait for the answer to its request");
            self.peer.answer(&id, &Err(error)).await;
            return Life::GoesOn;
        }
        match self.read_session().await {
            Ok(last_seq) => {
                self.load = Some(PendingLoad { id, is_shown, last_seq });
                self.finish_load_at(0).await;
                Life::GoesOn
            }
            Err(error) => {
                self.peer.answer(&id, &Err(error)).await;
                Life::Ends
            }
        }
    }

    async fn read_session(&mut self) -> Result<u64, RpcError> {
        let client = self.link.client().await?;
        let request = GetSessionRequest { session_id: self.session.clone() };
        let info = self.link.call(request, SessionsApi::get_session).await?;
        self.catalogue = self.link.catalogue().await?;
        self.choices = Choices { agent: info.agent, model: info.model };
        self.translator = Translator::default();
        self.stream = Some(SessionStream::new(client, &self.session, 1, true));
        (self.phase, self.next_seq) = (Phase::Open, 1);
        self.withdraw_all().await;
        Ok(info.seq)
    }

    /// Answers the load once the past was read, and asks the gates that are open.
    pub(super) async fn finish_load_at(&mut self, seq: u64) {
        let Some(load) = self.load.take_if(|load| seq >= load.last_seq) else { return };
        let answer = json!({"configOptions": self.catalogue.options(&self.choices)});
        self.peer.answer(&load.id, &Ok(answer)).await;
        for gate in self.translator.open_gates().to_vec() {
            self.ask(&gate).await;
        }
    }

    /// Takes over agent and model from the events, and shows them if they have changed.
    pub(super) async fn adopt_settings(&mut self) {
        let (agent, model) = self.translator.settings();
        let choices = Choices { agent: agent.to_owned(), model: model.to_owned() };
        if choices != self.choices {
            self.choices = choices;
            let config_options = self.catalogue.options(&self.choices);
            if self.load.is_none() {
                self.show(&SessionUpdate::ConfigOptionUpdate { config_options }).await;
            }
        }
    }

    /// Sets agent or model; returns the options as they are then.
    pub(super) async fn set(&mut self, name: SettingName, value: String) -> Result<Value, RpcError> {
        let mut choices = self.choices.clone();
        match name {
            // An agent brings its model.
            SettingName::Agent => {
                choices = Choices { agent: self.catalogue.find_agent(&value)?.id.clone(), model: String::new() };
            }
            SettingName::Model => choices.model = value,
        }
        if self.phase != Phase::NotStarted {
            let changed = match name {
                SettingName::Agent => ("agent", &choices.agent),
                SettingName::Model => ("model", &choices.model),
            };
            let request = json!({"session_id": self.session, "command_id": command_id(), changed.0: changed.1});
            self.link.call(request_of(request)?, SessionsApi::configure_session).await?;
        }
        self.choices = choices;
        Ok(json!({"configOptions": self.catalogue.options(&self.choices)}))
    }
}

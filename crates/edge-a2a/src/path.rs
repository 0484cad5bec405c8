//! Paths of the binding HTTP+JSON below `/a2a/v1`, each also below the id of an agent.

use axum::http::Method as HttpMethod;

/// Operation that a path requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathTarget {
    SendMessage,
    StreamMessage,
    GetTask(String),
    ListTasks,
    CancelTask(String),
    SubscribeToTask(String),
    /// Settings of push notifications, whatever is to be done with them.
    PushConfigs,
    ExtendedCard,
}

/// Parses the path behind `/a2a/v1/`: the agent, if it names one, and what it asks for. A path is read without an agent
/// first. A slash at its end says nothing.
pub(super) fn parse_path(method: &HttpMethod, path: &str) -> Option<(Option<String>, PathTarget)> {
    let segments: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
    if let Some(target) = parse_target(method, &segments) {
        return Some((None, target));
    }
    let (agent, rest) = segments.split_first()?;
    Some((Some((*agent).to_owned()), parse_target(method, rest)?))
}

fn parse_target(method: &HttpMethod, segments: &[&str]) -> Option<PathTarget> {
    let (is_get, is_post) = (method == HttpMethod::GET, method == HttpMethod::POST);
    let is_delete = method == HttpMethod::DELETE;
    match segments {
        ["message:send"] if is_post => Some(PathTarget::SendMessage),
        ["message:stream"] if is_post => Some(PathTarget::StreamMessage),
        ["tasks"] if is_get => Some(PathTarget::ListTasks),
        ["extendedAgentCard"] if is_get => Some(PathTarget::ExtendedCard),
        ["tasks", _, "pushNotificationConfigs"] if is_get || is_post => Some(PathTarget::PushConfigs),
        ["tasks", _, "pushNotificationConfigs", _] if is_get || is_delete => Some(PathTarget::PushConfigs),
        ["tasks", task] => match task.rsplit_once(':') {
            Some((id, "subscribe")) if is_get || is_post => Some(PathTarget::SubscribeToTask(id.to_owned())),
            Some((id, "cancel")) if is_post => Some(PathTarget::CancelTask(id.to_owned())),
            None if is_get => Some(PathTarget::GetTask((*task).to_owned())),
            Some(_) | None => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_parsed_with_and_without_an_agent() {
        let get = PathTarget::GetTask("s.1".to_owned());
        let subscribe = PathTarget::SubscribeToTask("s.1".to_owned());
        let rows = [
            ("POST", "message:send", None, PathTarget::SendMessage),
            ("POST", "e/message:stream", Some("e"), PathTarget::StreamMessage),
            ("GET", "tasks", None, PathTarget::ListTasks),
            ("GET", "e/tasks/", Some("e"), PathTarget::ListTasks),
            ("GET", "e/tasks", Some("e"), PathTarget::ListTasks),
            ("GET", "tasks/s.1", None, get.clone()),
            ("GET", "tasks/tasks/s.1", Some("tasks"), get),
            ("GET", "tasks/s.1:subscribe", None, subscribe.clone()),
            ("POST", "e/tasks/s.1:subscribe", Some("e"), subscribe),
            ("POST", "tasks/s.1:cancel", None, PathTarget::CancelTask("s.1".to_owned())),
            ("POST", "tasks/message:send", Some("tasks"), PathTarget::SendMessage),
            ("GET", "e/extendedAgentCard", Some("e"), PathTarget::ExtendedCard),
            ("DELETE", "tasks/s.1/pushNotificationConfigs/c", None, PathTarget::PushConfigs),
        ];
        for (method, path, agent, target) in rows {
            let found = parse_path(&method.parse().unwrap(), path);
            assert_eq!(found, Some((agent.map(str::to_owned), target)), "{method} {path}");
        }
        let unknown =
            [("GET", "message:send"), ("GET", "tasks/s.1:cancel"), ("POST", "tasks/s.1"), ("GET", "a/b/tasks")];
        for (method, path) in
            unknown.into_iter().chain([("GET", ""), ("PUT", "tasks/s.1"), ("POST", "tasks/s.1:dance")])
        {
            assert_eq!(parse_path(&method.parse().unwrap(), path), None, "{method} {path}");
        }
    }
}

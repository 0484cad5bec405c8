//! Paths of the binding HTTP+JSON below `/a2a/v1`, each also below the id of an agent.

use axum::http::Method as HttpMethod;

/// Operation that a path requests: the name of its method, and the id of the task if it is about one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathTarget {
    pub(super) method: &'static str,
    pub(super) task: Option<String>,
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
    let of_all = |method| Some(PathTarget { method, task: None });
    let of_task = |method, task: &str| Some(PathTarget { method, task: Some(task.to_owned()) });
    match segments {
        ["message:send"] if is_post => of_all("SendMessage"),
        ["message:stream"] if is_post => of_all("SendStreamingMessage"),
        ["tasks"] if is_get => of_all("ListTasks"),
        ["extendedAgentCard"] if is_get => of_all("GetExtendedAgentCard"),
        // They are not served, whatever is to be done with them.
        ["tasks", _, "pushNotificationConfigs"] if is_get || is_post => of_all("ListTaskPushNotificationConfigs"),
        ["tasks", _, "pushNotificationConfigs", _] if is_get || is_delete => of_all("GetTaskPushNotificationConfig"),
        ["tasks", task] => match task.rsplit_once(':') {
            Some((id, "subscribe")) if is_get || is_post => of_task("SubscribeToTask", id),
            Some((id, "cancel")) if is_post => of_task("CancelTask", id),
            None if is_get => of_task("GetTask", task),
            Some(_) | None => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::super::errors::A2aErrorKind;
    use super::super::operation::AgentOperation;
    use super::*;

    #[test]
    fn path_is_parsed_with_and_without_an_agent() {
        let task = Some("s.1");
        let rows = [
            ("POST", "message:send", None, "SendMessage", None),
            ("POST", "e/message:stream", Some("e"), "SendStreamingMessage", None),
            ("GET", "tasks", None, "ListTasks", None),
            ("GET", "e/tasks/", Some("e"), "ListTasks", None),
            ("GET", "e/tasks", Some("e"), "ListTasks", None),
            ("GET", "tasks/s.1", None, "GetTask", task),
            ("GET", "tasks/tasks/s.1", Some("tasks"), "GetTask", task),
            ("GET", "tasks/s.1:subscribe", None, "SubscribeToTask", task),
            ("POST", "e/tasks/s.1:subscribe", Some("e"), "SubscribeToTask", task),
            ("POST", "tasks/s.1:cancel", None, "CancelTask", task),
            ("POST", "tasks/message:send", Some("tasks"), "SendMessage", None),
            ("GET", "e/extendedAgentCard", Some("e"), "GetExtendedAgentCard", None),
            ("DELETE", "tasks/s.1/pushNotificationConfigs/c", None, "GetTaskPushNotificationConfig", None),
        ];
        for (verb, path, agent, method, task) in rows {
            let found = parse_path(&verb.parse().unwrap(), path);
            let target = PathTarget { method, task: task.map(str::to_owned) };
            assert_eq!(found, Some((agent.map(str::to_owned), target)), "{verb} {path}");
            let refused = AgentOperation::parse(method, Map::new()).err().map(|error| error.kind);
            assert_ne!(refused, Some(A2aErrorKind::MethodNotFound), "{method}");
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

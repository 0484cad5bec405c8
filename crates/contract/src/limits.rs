//! Every limit by name (I7), with its value.

use std::time::Duration;

/// Bytes of one user message, and of the prompt of a `start`.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of one client command as it is stored: a frame of full size, its text escaped once more.
pub const COMMAND_BYTES_MAX: usize = 8 << 20;
/// Levels of objects and lists within each other in JSON that others write: parameters, arguments of calls, schemas,
/// parts that a provider wants again. It is embedded some levels deep, and readers of JSON give up at 128.
pub const JSON_DEPTH_MAX: usize = 32;
/// Values and names in the JSON of one request: each takes far more memory than its text.
pub const JSON_VALUES_MAX: usize = 32 << 10;
/// Messages of a `start`.
pub const START_MESSAGES_MAX: usize = 1_000;
/// Parts of one message.
pub const MESSAGE_PARTS_MAX: usize = 64;
/// Bytes of a session's parameters for the provider, as JSON.
pub const PARAMETERS_BYTES_MAX: usize = 16 << 10;
/// Values and names of a session's parameters for the provider.
pub const PARAMETER_VALUES_MAX: usize = 1_024;
/// Bytes of an `ai_config.system_prompt`.
pub const SYSTEM_PROMPT_BYTES_MAX: usize = 64 << 10;
/// Bytes of an `ai_config.tool_preamble`.
pub const TOOL_PREAMBLE_BYTES_MAX: usize = 16 << 10;
/// Values for `{{{name}}}` of one `ai_config`.
pub const PROMPT_PARAMETERS_MAX: usize = 64;
/// Bytes of all these values together.
pub const PROMPT_PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// Steps of a turn for which `ai_config.tool_choice` says something.
pub const TOOL_CHOICES_MAX: usize = 20;
/// Greatest `retries` of a session.
pub const MODEL_RETRIES_LIMIT: u32 = 10;
/// Features that one command switches on, and that it switches off.
pub const FEATURES_MAX: usize = 64;
/// Tools that a `start` names.
pub const SESSION_TOOLS_MAX: usize = 256;
/// Bytes of one name in a command: a model, a feature, a tool.
pub const NAME_BYTES_MAX: usize = 1 << 10;
/// Bytes of a reason or a note.
pub const REASON_BYTES_MAX: usize = 4 << 10;
/// Wall clock of one turn that no configuration can exceed.
pub const TURN_MAX: Duration = Duration::from_hours(7 * 24);
/// Tokens that a limit of a turn can name.
pub const LIMIT_TOKENS_MAX: u64 = 1_000_000_000_000;
/// US dollars that a limit of a turn can name.
pub const LIMIT_USD_MAX: u32 = 1_000_000;
/// Tool calls, repetitions and steps that a limit of a turn can name.
pub const LIMIT_COUNT_MAX: u32 = 1_000_000;
/// Longest time-out that a command can set for a model's connection, first byte or silence.
pub const STREAM_TIMEOUT_MAX: Duration = Duration::from_hours(1);
/// Longest time for which a command can have a reply's pieces gathered.
pub const CHUNK_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of a reply's pieces that a command can have gathered.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Bytes of the transcript that a session takes over from an older one.
pub const RESUME_BYTES_MAX: usize = 16 << 20;
/// Bytes of a body that still travels inline; larger ones go by reference to an object store.
pub const INLINE_BYTES_MAX: usize = 256 << 10;
/// Bytes of one WebSocket frame or gRPC message at the edge: a message of full size, JSON-escaped, with its envelope.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// Time for which a message may refer to a large body that no replica of the store has yet; after that the body counts
/// as lost.
pub const BODY_LATE_MAX: Duration = Duration::from_mins(1);
/// Bytes of a tool result that go to the model; a tool may declare less.
pub const TOOL_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a tool's JSON Schema.
pub const TOOL_SCHEMA_BYTES_MAX: usize = 32 << 10;
/// Cost of a tool's JSON Schema: the subschemas that apply to one value once references are followed, summed over all
/// subschemas.
pub const TOOL_SCHEMA_EXPANSION_MAX: u64 = 16_384;
/// Different patterns of a tool's JSON Schema.
pub const TOOL_SCHEMA_PATTERNS_MAX: usize = 64;
/// Bytes of the arguments of one tool call.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 1 << 20;
/// Steps of validating one call's arguments: each subschema that is applied to a value is one, long texts and patterns
/// take more.
pub const VALIDATION_STEPS_MAX: u64 = 200_000;
/// Longest time to validate the arguments of one call, with the wait for a free thread.
pub const VALIDATION_MAX: Duration = Duration::from_secs(5);
/// Validations of one executor that run at the same time on threads of their own.
pub const VALIDATIONS_MAX: usize = 2;
/// Bytes of one server-sent event of a model provider, and so of one line.
pub const SSE_EVENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of one whole model reply (text, reasoning and arguments together).
pub const REPLY_BYTES_MAX: usize = 8 << 20;
/// Tool calls of one reply that are honoured; the others get an error result.
pub const TOOL_CALLS_PER_REPLY_MAX: usize = 128;
/// Waiting commands of one session at the edge.
pub const WAITING_COMMANDS_MAX: usize = 64;
/// Input ids that a session remembers, for recognising a repeated one.
pub const HANDLED_IDS_MAX: usize = 1_024;
/// Greatest age of a repeated command; an older one is `stale_command`.
pub const COMMAND_AGE_MAX: Duration = Duration::from_hours(12);
/// Slots of one page of the log; a page begins with a snapshot.
pub const SLOTS_PER_PAGE: u64 = 64;
/// Bytes of messages in no part of the transcript, from which on the next commit stores them as a part. Until then each
/// model call repeats them.
pub const TRANSCRIPT_PART_BYTES: usize = 8 * 1_024;
/// Time for which an archived page, and the rest of an archived session in the log, stay readable, where the
/// configuration says nothing else.
pub const RETENTION: Duration = Duration::from_hours(30 * 24);
/// Extra time for which bodies in the archive outlive the pages that refer to them, since they are stored first.
pub const RETENTION_MARGIN: Duration = Duration::from_hours(24);
/// Time from a session's end to its leaving the log, where the configuration says nothing else.
pub const ARCHIVE_AFTER: Duration = Duration::from_hours(1);
/// Time without an input after which the log of an idle session is compacted to one commit, where the configuration
/// says nothing else.
pub const COMPACT_AFTER: Duration = Duration::from_hours(1);
/// A log with fewer commits is not compacted: it would have as many messages as before, with those of the archive.
pub const COMPACT_COMMITS_MIN: u64 = 3;
/// Finished pages that stay in the log of a session that lives, before the one that is written to.
pub const PAGES_BEHIND_MAX: u64 = 1;
/// Further model attempts after failures that may pass (rate limited, overloaded, hung, truncated), in a row.
pub const MODEL_RETRIES_MAX: u32 = 3;
/// Model calls that may wait for a gateway before the edge refuses new turns, where the configuration says nothing
/// else.
pub const WAITING_CALLS_MAX: u64 = 2_000;
/// Percentage of [`WAITING_CALLS_MAX`] that one tenant may take, where the configuration says nothing else; the rest is
/// free for other tenants.
pub const TENANT_SHARE_PERCENT: u64 = 80;
/// Sessions of one tenant that have not ended, where the configuration says nothing else.
pub const TENANT_SESSIONS_MAX: usize = 50_000;
/// Tenants whose session index one edge keeps in memory.
pub const EDGE_TENANTS_MAX: usize = 256;
/// Cells of one table.
pub const CELLS_MAX: usize = 64;
/// Sessions outside of the home of their id whose cell one edge remembers: at most 4 MB.
pub const CELL_PLACEMENTS_MAX: usize = 10_000;
/// API keys of one file.
pub const API_KEYS_MAX: usize = 10_000;
/// Agents that one API key names.
pub const API_KEY_AGENTS_MAX: usize = 64;
/// Issuers whose access tokens one edge accepts.
pub const ISSUERS_MAX: usize = 8;
/// Verified access tokens that one edge keeps.
pub const ACCESS_TOKENS_MAX: usize = 10_000;
/// Bytes of one tenant in the log and the archive, where the configuration says nothing else.
pub const TENANT_STORED_BYTES_MAX: u64 = 64 << 30;
/// Bytes of the session index that an edge keeps in memory; a larger one is read from its bucket for each call.
pub const SESSION_INDEX_BYTES_MAX: usize = 64 << 20;
/// Client connections of one edge with accepted credentials, where the configuration says nothing else.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Bytes that connections and what waits for their clients may take, where the configuration says nothing else.
pub const CONNECTION_BYTES_MAX: usize = 256 << 20;
/// Connections of one server without accepted credentials, where the configuration says nothing else.
pub const PENDING_CONNECTIONS_MAX: usize = 256;
/// Connections of one address without accepted credentials, where the configuration says nothing else.
pub const PENDING_CONNECTIONS_PER_ADDRESS_MAX: usize = 64;
/// Time until a connection must have shown valid credentials, where the configuration says nothing else.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Time that an HTTP/1 connection with accepted credentials may be without a request, where the configuration says
/// nothing else: longer than proxies keep theirs.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Requests of one connection that an edge reads each second in the long run, where the configuration says nothing
/// else.
pub const CONNECTION_REQUESTS_PER_S: u32 = 200;
/// Attempts for an empty reply, within a step.
pub const EMPTY_REPLIES_MAX: u32 = 3;
/// Steps of a turn that no configuration can exceed.
pub const ITERATIONS_MAX: u32 = 200;
/// Models that may take a model's place, in the order in which they are tried.
pub const FALLBACKS_MAX: usize = 8;
/// Other providers of a model that are asked in turn.
pub const ALTERNATIVES_MAX: usize = 8;
/// Parameters that an operator lets through at one provider, beside those that its protocol is known to take.
pub const ALLOWED_PARAMETERS_MAX: usize = 64;
/// Budgets of one configuration.
pub const BUDGETS_MAX: usize = 1_000;
/// Messages that may wait for a turn; more are refused.
pub const QUEUED_MESSAGES_MAX: usize = 64;
/// Bytes of the messages that may wait for a turn; more are refused.
pub const QUEUED_BYTES_MAX: usize = 8 << 20;
/// Greatest difference between the clocks of an orchestrator and of nats-server; beyond it the orchestrator decides
/// nothing.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_mins(1);
/// Time without activity after which a replica that loads a session performs its outstanding effects again.
pub const QUIET_MAX: Duration = Duration::from_secs(10);
/// Greatest delay of a session's timer; beyond it the timer is set again.
pub const TIMER_LATE_MAX: Duration = Duration::from_secs(30);
/// Lifetime of an idle or paused session without input.
pub const IDLE_MAX: Duration = Duration::from_hours(7 * 24);
/// Time from the opening of a model call to its watchdog, when the turn's deadline is not earlier.
pub const MODEL_CALL_MAX: Duration = Duration::from_mins(10);
/// Time that the loop waits after a tool call's deadline for the executor's own result.
pub const TOOL_CALL_GRACE: Duration = Duration::from_secs(10);
/// Longest time from the end of a pause to the start of a call that still has its whole timeout.
pub const PAUSE_SEEN_MAX: Duration = Duration::from_secs(30);
/// Estimated tokens of the reply of a turn's last step, when the loop checks whether the turn can pay for it.
pub const LAST_WORD_TOKENS: u64 = 1_024;
/// Hundredths of a turn's limits on tokens and money that its last step may use above them.
pub const LAST_WORD_RESERVE_PERCENT: u64 = 10;
/// Time that a turn at its time limit has to end with an answer of the model: for the text of the reply that the limit
/// cuts, and for the last step.
pub const LAST_WORD_MAX: Duration = Duration::from_mins(1);
/// Bytes that are kept of the text of a reply that was cut off.
pub const CUT_REPLY_BYTES_MAX: usize = 64 << 10;
/// Cancelled replies of a session whose text is still awaited; the text of an older one is not kept.
pub const CUT_REPLIES_MAX: usize = 8;
/// Longest wait for the partial text of an interrupted model call.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(5);
/// Longest time that a gate waits for its answer.
pub const GATE_MAX: Duration = Duration::from_hours(24);
/// Bytes of a question to a person, of each of its choices, and of its default.
pub const QUESTION_BYTES_MAX: usize = 16 << 10;
/// Choices of a question.
pub const QUESTION_CHOICES_MAX: usize = 32;
/// Bytes of a gate's arguments that the session index shows.
pub const GATE_SHOWN_BYTES: usize = 2 << 10;
/// Gates of one session that its index shows.
pub const GATES_SHOWN_MAX: usize = 32;
/// Rules of one agent about asking a person.
pub const APPROVAL_RULES_MAX: usize = 64;
/// Bytes of a tool's result that are kept where the model reads only parts.
pub const WHOLE_RESULT_BYTES_MAX: usize = 8 << 20;
/// Time to live of such a result.
pub const WHOLE_RESULT_AGE_MAX: Duration = Duration::from_hours(7 * 24);
/// Bytes of one progress report that viewers get.
pub const PROGRESS_BYTES_MAX: usize = 4 << 10;
/// Time between two progress reports of one call that viewers get; those in between are dropped.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Sessions that may stand above another one, each having asked the next.
pub const DELEGATE_DEPTH_MAX: usize = 5;
/// Bytes that are left of a tool result that is cut when a transcript outgrows its model's window, half of them its
/// head.
pub const RESULT_KEEP_BYTES: usize = 2 << 10;
/// Bytes of the summary that takes the place of older turns.
pub const SUMMARY_BYTES_MAX: usize = 16 << 10;
/// Longest time for the request of a summary; after that the turns are dropped without one.
pub const SUMMARY_MAX: Duration = Duration::from_mins(1);
/// Bytes of a message's text in a transcript for people; the middle of a longer one is left out.
pub const READABLE_TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a tool result, and of a call's arguments, in a transcript for people; the middle of a longer one is left
/// out.
pub const READABLE_RESULT_BYTES_MAX: usize = 8 << 10;
/// Bytes of the turns of one part of a transcript for people; one turn may have more.
pub const TRANSCRIPT_BYTES_MAX: usize = 4 << 20;
/// Longest time for a judge to say whether a turn goes on; after that the reply is decided about without it.
pub const JUDGE_MAX: Duration = Duration::from_secs(30);
/// Bytes of each text that a judge reads: of the user's message its beginning, of the reply its end.
pub const JUDGE_BYTES_MAX: usize = 8 << 10;
/// Estimated tokens of a judge's request and answer, before it is asked.
pub const JUDGE_TOKENS: u64 = 7_500;
/// Tokens of a judge's answer, which may reason before its verdict.
pub const JUDGE_OUTPUT_TOKENS: u64 = 2_048;
/// Characters of a judge's reason that are kept.
pub const JUDGE_REASON_CHARS_MAX: usize = 200;
/// Time-out of a tool that declares none.
pub const TOOL_TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);
/// Longest time of a call outside of a session, whatever its tool declares.
pub const TRIAL_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of the arguments of such a call.
pub const TRIAL_ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// Longest time-out that a tool may declare.
pub const TOOL_TIMEOUT_MAX: Duration = Duration::from_hours(1);
/// Time without an in-progress ack after which a work item or an input is delivered to another worker.
pub const ACK_WAIT: Duration = Duration::from_secs(5);
/// Pause between in-progress acks.
pub const ACK_PROGRESS_EVERY: Duration = Duration::from_millis(1_500);
/// Items that one consumer may have handed out.
pub const ACK_PENDING_MAX: u32 = 20_000;
/// Open tool calls of one tenant, waiting or held, from which on the edge refuses its new turns, where the
/// configuration says nothing else. The limit stops a tenant before its calls fill [`ACK_PENDING_MAX`].
pub const TENANT_TOOL_CALLS_MAX: u64 = 10_000;
/// Deliveries of an input whose session cannot be read or written, before it is a dead letter.
pub const DELIVERIES_MAX: u64 = 50;
/// Deliveries of a work item after which a worker drops it whose opening commit the log's leader does not show, since the
/// log was put back to an older state; and one of a closed call whose session no orchestrator repairs.
pub const UNSEEN_DELIVERIES_MAX: u64 = 12;
/// Pause between a worker's reads of the log while a call runs.
pub const WORKER_CHECK_EVERY: Duration = Duration::from_secs(5);
/// Time to live of a claim of a call that takes effect.
pub const CLAIM_AGE_MAX: Duration = Duration::from_hours(7 * 24);
/// Notifications that one client may fall behind; beyond that first its chunks are dropped, then its connection.
pub const CLIENT_QUEUE_MAX: usize = 1_024;
/// Time to live of a catalogue entry that is not refreshed.
pub const CATALOGUE_AGE_MAX: Duration = Duration::from_secs(30);
/// Bytes of a mail's text, as JSON writes them.
pub const MAIL_TEXT_BYTES_MAX: usize = 32 << 10;
/// Bytes of a mail's subject, as JSON writes them.
pub const MAIL_SUBJECT_BYTES_MAX: usize = 1 << 10;
/// Mails that may wait in one mailbox; more are refused.
pub const MAILBOX_OPEN_MAX: usize = 100;
/// Closed mails that one mailbox may still remember; while there are more, new ones are refused.
pub const MAILBOX_CLOSED_MAX: usize = 512;
/// Mails in one list of a mailbox.
pub const MAILS_SHOWN_MAX: usize = 20;
/// Time to live of a mail that is neither answered nor closed.
pub const MAIL_AGE_MAX: Duration = Duration::from_hours(30 * 24);
/// Time to live of the mark of a closed mail; no tool call is repeated later than that.
pub const MAIL_CLOSED_AGE_MAX: Duration = Duration::from_hours(1);
/// Tools that a client brings with one session.
pub const CLIENT_TOOLS_MAX: usize = 128;
/// Bytes of all tools of clients together, as JSON: each snapshot and each request to a model carries them.
pub const CLIENT_TOOLS_BYTES_MAX: usize = 256 << 10;
/// Timeout of a client's tool that names none: a person may have to be found.
pub const CLIENT_TOOL_TIMEOUT_DEFAULT: Duration = Duration::from_hours(1);
/// Longest time that a client's tool may name.
pub const CLIENT_TOOL_TIMEOUT_MAX: Duration = Duration::from_hours(24);
/// Bytes of a client's answer to a call; the model reads as many of them as the tool allows.
pub const CLIENT_RESULT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a waiting call's arguments that the session index shows.
pub const CLIENT_CALL_SHOWN_BYTES: usize = 2 << 10;
/// Waiting calls of one session that its index shows.
pub const CLIENT_CALLS_SHOWN_MAX: usize = 32;
/// Bytes of text in one event of AG-UI; a longer one goes out in several events.
pub const AG_UI_DELTA_BYTES_MAX: usize = 256 << 10;
/// Bytes of state and messages that an interrupt of AG-UI repeats: clients read no event of more than 10 MB.
pub const AG_UI_SNAPSHOT_BYTES_MAX: usize = 8 << 20;

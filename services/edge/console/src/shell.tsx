// The frame of every view: navigation, the state of the connection, the key dialog and the keys.

import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { caller, can } from "./core/caller.ts";
import { connection, hasConnected, rpc, storedKey, unlock } from "./core/connection.ts";
import { shortcuts, useKeys } from "./core/keys.ts";
import { clock, usePoll } from "./core/poll.ts";
import { go, links, route } from "./core/route.ts";
import type { CallList, GateList } from "./core/types.ts";
import { Icon, type IconName } from "./ui/icons.tsx";
import { lazyPart } from "./ui/late.tsx";
import { Button, Dialog, Empty, Field, Problem } from "./ui/parts.tsx";
import { nextTheme, theme } from "./ui/theme.ts";
import { SessionsView } from "./views/sessions.tsx";
import { SessionView } from "./views/session.tsx";

interface Place {
  /** The first part of its path. */
  name: string;
  text: string;
  icon: IconName;
  key: string;
  /** Whether it is in the bar of a phone; the others are behind `More`. */
  isMain?: boolean;
  /** Without this method the view shows nothing. */
  needs?: string;
}

const PLACES: Place[] = [
  { name: "", text: "Overview", icon: "overview", key: "o", isMain: true },
  { name: "sessions", text: "Sessions", icon: "sessions", key: "s", isMain: true },
  { name: "inbox", text: "Approvals", icon: "inbox", key: "a", isMain: true },
  { name: "start", text: "Playground", icon: "start", key: "n", isMain: true, needs: "session.start" },
  { name: "tools", text: "Tools", icon: "tools", key: "t" },
  { name: "agents", text: "Agents", icon: "agents", key: "e" },
  { name: "models", text: "Models", icon: "models", key: "l" },
  { name: "mail", text: "Mail", icon: "mail", key: "m", needs: "mail.list" },
  { name: "dead", text: "Dead letters", icon: "dead", key: "d", needs: "dead.list" },
  { name: "fleet", text: "Fleet", icon: "fleet", key: "f", needs: "fleet.status" },
];

function view(load: () => Promise<ComponentType>): ComponentType {
  // An edge of another version has other files.
  return lazyPart(load, () => (
    <Empty title="This part of the console could not be loaded">
      <button type="button" class="link" onClick={() => location.reload()}>
        Load the page again
      </button>
    </Empty>
  ));
}

/** Views that are loaded when they are first opened. */
const LATE: Record<string, ComponentType> = {
  "": view(() => import("./views/overview.tsx").then((part) => part.OverviewView)),
  inbox: view(() => import("./views/inbox.tsx").then((part) => part.InboxView)),
  start: view(() => import("./views/start.tsx").then((part) => part.StartView)),
  compare: view(() => import("./views/compare.tsx").then((part) => part.CompareView)),
  tools: view(() => import("./views/tools.tsx").then((part) => part.ToolsView)),
  agents: view(() => import("./views/agents.tsx").then((part) => part.AgentsView)),
  models: view(() => import("./views/models.tsx").then((part) => part.ModelsView)),
  mail: view(() => import("./views/mail.tsx").then((part) => part.MailView)),
  dead: view(() => import("./views/dead.tsx").then((part) => part.DeadView)),
  fleet: view(() => import("./views/fleet.tsx").then((part) => part.FleetView)),
};

export function Shell() {
  const [areKeysShown, showKeys] = useState(false);
  useKeys([
    { keys: "?", text: "Show the keys", run: () => showKeys(true) },
    ...PLACES.map((place) => ({ keys: `g ${place.key}`, text: place.text, run: () => go(links.view(place.name)) })),
  ]);
  const gates = usePoll<GateList>("gates.list", { limit: 1000 }, 3000);
  const calls = usePoll<CallList>("calls.list", { limit: 1000 }, 3000);
  const waiting = (gates.data?.gates.length ?? 0) + (calls.data?.calls.length ?? 0);
  const place = route.value.path[0] ?? "";
  useEffect(() => {
    const name = PLACES.find((other) => other.name === place)?.text ?? "Compare";
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${name} · ailoop`;
  }, [place, waiting]);
  // A view that replaces another one gets the focus, so that keys and readers begin there.
  const view = route.value.path.slice(0, 2).join("/");
  const lastView = useRef(view);
  useEffect(() => {
    if (lastView.current !== view) document.getElementById("main")?.focus({ preventScroll: true });
    lastView.current = view;
  }, [view]);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <Navigation current={place} waiting={waiting} onKeys={() => showKeys(true)} />
      <div class="stage">
        <Banner />
        <main id="main" tabIndex={-1}>
          {connection.value.kind === "locked" ? null : <View />}
        </main>
      </div>
      {connection.value.kind === "locked" && <KeyDialog reason={connection.value.reason} />}
      {areKeysShown && <KeysDialog onClose={() => showKeys(false)} />}
    </div>
  );
}

function Navigation({ current, waiting, onKeys }: { current: string; waiting: number; onKeys: () => void }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [route.value]);
  const link = (place: Place) => (
    <a
      class={`nav-link ${place.isMain ? "nav-main" : "nav-more"}`}
      href={links.view(place.name)}
      aria-current={place.name === current ? "page" : undefined}
    >
      <Icon name={place.icon} />
      <span>{place.text}</span>
      {place.name === "inbox" && waiting > 0 && (
        <span class="count count-wait" aria-label={`${waiting} wait`}>
          {waiting}
        </span>
      )}
    </a>
  );
  return (
    <nav class={`nav ${isOpen ? "nav-open" : ""}`} aria-label="Views">
      <a class="brand" href={links.overview()} aria-label="ailoop, overview">
        <Mark />
        <span>ailoop</span>
      </a>
      {PLACES.filter((place) => place.needs === undefined || can(place.needs)).map(link)}
      <button type="button" class="nav-link nav-toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name="more" />
        <span>More</span>
      </button>
      <div class="nav-foot">
        <ConnectionState />
        {caller.value !== null && (
          <div class="nav-who" title={`Scopes: ${caller.value.scopes.join(", ")}`}>
            {caller.value.subject} · {caller.value.tenant}
          </div>
        )}
        <button type="button" class="nav-link nav-more" onClick={nextTheme}>
          <Icon name="light" />
          <span>Theme: {theme.value}</span>
        </button>
        <button type="button" class="nav-link nav-more" onClick={onKeys}>
          <Icon name="keys" />
          <span>Keys</span>
        </button>
      </div>
    </nav>
  );
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M16 7a9 9 0 1 1-8.500 6" />
      <circle cx="16" cy="16" r="3" />
    </svg>
  );
}

function ConnectionState() {
  const state = connection.value;
  const [tone, text] =
    state.kind === "open"
      ? ["good", "connected"]
      : state.kind === "locked"
        ? ["wait", "key needed"]
        : ["wait", "connecting"];
  return (
    <div class={`nav-state badge-${tone}`} role="status">
      <span class="dot" aria-hidden="true" />
      {text}
    </div>
  );
}

/** Says that what is shown may be old. */
function Banner() {
  const state = connection.value;
  if (state.kind === "open" || state.kind === "locked" || (state.kind === "connecting" && !hasConnected.value))
    return null;
  const seconds = state.kind === "waiting" ? Math.max(0, Math.ceil((state.until - clock.value) / 1000)) : 0;
  return (
    <div class="banner" role="status">
      <Icon name="warning" />
      <span>
        <strong>Disconnected.</strong> What you see may be old; commands that you give now are sent after the connection
        is back.
        {state.kind === "waiting" ? ` Next try in ${seconds} s.` : " Connecting …"}
      </span>
      <Button onClick={() => rpc.connect()}>Try now</Button>
    </div>
  );
}

function KeyDialog({ reason }: { reason: string }) {
  const [key, setKey] = useState("");
  const refused = storedKey() !== "" && reason === "";
  return (
    <Dialog title="This edge asks for a key">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          unlock(key);
        }}
      >
        <p>Enter an API key, an access token, or the token of the edge. It is kept in this tab until you close it.</p>
        {(refused || reason !== "") && <Problem error={reason || "The edge refused this key."} />}
        <Field label="Key">
          <input
            type="password"
            autoComplete="off"
            autoFocus
            required
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </Field>
        <div class="form-actions">
          <Button type="submit" kind="primary">
            Connect
          </Button>
        </div>
      </form>
      <p class="hint">
        Make one with <code>ailoop api-key new NAME --scope observe --scope run --scope approve</code>.
      </p>
    </Dialog>
  );
}

function KeysDialog({ onClose }: { onClose: () => void }) {
  const [list] = useState(shortcuts);
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {list.map((shortcut) => (
          <div>
            <dt>
              {shortcut.keys.split(" ").map((key) => (
                <kbd>{key}</kbd>
              ))}
            </dt>
            <dd>{shortcut.text}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

function View() {
  const [name = "", id] = route.value.path;
  if (name === "sessions") return id === undefined ? <SessionsView /> : <SessionView key={id} id={id} />;
  const LateView = LATE[name];
  if (LateView !== undefined) return <LateView />;
  return (
    <Empty title="There is no such view">
      <a href={links.overview()}>Go to the overview</a>
    </Empty>
  );
}

// The place in the console is the hash of the address: `#/sessions/ID?tab=timeline`.

import { computed, signal } from "@preact/signals";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path: parts, query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The key in the address `#key=KEY`, by which `ailoop up` opens the console. */
export function keyOfHash(hash: string): string | undefined {
  return /^#key=(.+)$/.exec(hash)?.[1];
}

export function makeHash(path: string[], query: Record<string, string | undefined> | URLSearchParams = {}): string {
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  const kept = entries.filter((entry): entry is [string, string] => entry[1] !== undefined && entry[1] !== "");
  const text = new URLSearchParams(kept).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
}

const hash = signal("");

export const route = computed(() => parseRoute(hash.value));

export function followAddress(): void {
  hash.value = location.hash;
  addEventListener("hashchange", () => {
    hash.value = location.hash;
  });
}

export function go(to: string): void {
  location.hash = to;
}

/** Changes parts of the query in place: the way back leads to the view before, not to the filter before. */
export function setQuery(changes: Record<string, string | undefined>): void {
  const { path, query } = route.value;
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") next.delete(name);
    else next.set(name, value);
  }
  const to = makeHash(path, next);
  if (to === location.hash) return;
  history.replaceState(null, "", to);
  hash.value = to;
}

export const links = {
  overview: () => makeHash([]),
  sessions: (query: Record<string, string | undefined> = {}) => makeHash(["sessions"], query),
  session: (id: string, query: Record<string, string | undefined> = {}) => makeHash(["sessions", id], query),
  inbox: () => makeHash(["inbox"]),
  start: (query: Record<string, string | undefined> = {}) => makeHash(["start"], query),
  compare: (a: string, b: string) => makeHash(["compare"], { a, b }),
  view: (name: string, query: Record<string, string | undefined> = {}) => makeHash([name], query),
};

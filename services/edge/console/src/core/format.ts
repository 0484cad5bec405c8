// Times, amounts and sizes for people.

export function formatMoney(usd: number): string {
  if (usd === 0) return "$0";
  if (usd < 0.0001) return "<$0.0001";
  if (usd < 0.01) return `$${usd.toFixed(4)}`;
  return usd < 100 ? `$${usd.toFixed(2)}` : `$${Math.round(usd).toLocaleString("en")}`;
}

export function formatCount(value: number): string {
  if (value < 10_000) return value.toLocaleString("en");
  if (value < 1_000_000) return `${trim(value / 1000)}k`;
  return `${trim(value / 1_000_000)}M`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${trim(value)} ${units[unit]}`;
}

function trim(value: number): string {
  return value >= 100 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, "");
}

export function formatDuration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Such as `12 s`, `5 min`, `3 h`, `2 d`; the sign says whether it is ahead. */
export function formatAge(from: string | number, now: number): string {
  const at = typeof from === "number" ? from : Date.parse(from);
  if (Number.isNaN(at)) return "";
  const seconds = Math.abs(now - at) / 1000;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

// Made once: a formatter of the browser costs more than all that it formats for a page.
const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hour12: false });

export function formatTime(at: string | number): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : TIME.format(date);
}

export function formatClock(at: string | number): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? "" : CLOCK.format(date);
}

/** Characters at the end of a generated id, which are random and stand for it in filters and commands. */
const SHORT_ID_CHARS = 8;

/** The short form of a generated id, as `SessionId::short` has it. Another id is shown whole. */
export function shortId(id: string): string {
  return /[0-9a-f]{12}$/.test(id) ? id.slice(-SHORT_ID_CHARS) : id;
}

/** The words of a stop reason or another identifier: `max_iterations` is `max iterations`. */
export function words(identifier: string): string {
  return identifier.replaceAll("_", " ");
}

export function firstLine(text: string): string {
  return text.trimStart().split("\n", 1)[0] ?? "";
}

export function plural(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A word for a shell, quoted where it must be. */
export function shellQuote(word: string): string {
  return /^[A-Za-z0-9_./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

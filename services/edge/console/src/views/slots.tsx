// The state of a session after any commit of its log, and what that commit changed.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { rpc } from "../core/connection.ts";
import { formatTime, plural } from "../core/format.ts";
import { compareJson } from "../core/json.ts";
import { route, setQuery } from "../core/route.ts";
import type { ReplayReport, ReplayedCommit } from "../core/types.ts";
import { Badge, Button, Problem, Tabs } from "../ui/parts.tsx";
import { DataBlock, Visible } from "../ui/text.tsx";

/** Scrubbing asks once the slider rests. */
const REST_MS = 120;
const CACHED_MAX = 40;

export function Slots({ id, seq, onFork }: { id: string; seq: number; onFork: (slot: number) => void }) {
  const asked = route.value.query.get("at");
  const [at, setAt] = useState<number | null>(asked === null ? null : Number(asked));
  const [now, setNow] = useState<ReplayReport | null>(null);
  const [before, setBefore] = useState<ReplayReport | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [tab, setTab] = useState<"changes" | "state">("changes");
  const cache = useRef(new Map<number, Promise<ReplayReport>>());
  const commits = useRef<ReplayedCommit[]>([]);
  const read = (slot: number | null): Promise<ReplayReport> => {
    const known = slot === null ? undefined : cache.current.get(slot);
    if (known !== undefined) return known;
    const at = slot === null ? {} : { at: slot };
    // The list of commits is as long as the log, and needed once.
    const hasCommit = slot !== null && (commits.current.at(-1)?.slot ?? -1) >= slot;
    const params = { session_id: id, ...at, no_commits: hasCommit };
    const reading = rpc.call<ReplayReport>("session.replay", params).then((found) => {
      if (found.commits !== undefined) commits.current = found.commits;
      return found;
    });
    if (slot !== null) {
      cache.current.set(slot, reading);
      reading.catch(() => cache.current.delete(slot));
      const oldest = cache.current.keys().next();
      if (cache.current.size > CACHED_MAX && !oldest.done) cache.current.delete(oldest.value);
    }
    return reading;
  };
  useEffect(() => {
    // Nothing has arrived yet.
    if (at === null && seq === 0) return;
    let isCurrent = true;
    const timer = setTimeout(
      async () => {
        try {
          const found = await read(at);
          const earlier = found.slot > 0 ? await read(found.slot - 1) : null;
          if (!isCurrent) return;
          setNow(found);
          setBefore(earlier);
          setError(null);
        } catch (failed) {
          if (isCurrent) setError(failed);
        }
      },
      now === null ? 0 : REST_MS,
    );
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [id, at, at === null ? seq : 0]);
  const choose = (slot: number) => {
    setAt(slot);
    setQuery({ at: String(slot) });
  };
  const changes = useMemo(() => (now === null ? null : compareJson(before?.state ?? {}, now.state)), [now, before]);
  if (error !== null && now === null) return <Problem error={error} />;
  if (now === null || changes === null) return <p class="muted pad">Folding the log …</p>;
  const slot = at ?? now.slot;
  const commit = commits.current.find((line) => line.slot === now.slot);
  const first = commits.current[0]?.slot ?? 0;
  return (
    <div class="slots pad scroll">
      <div class="slot-bar">
        <Button isDisabled={slot <= first} label="Slot before" onClick={() => choose(slot - 1)}>
          ‹
        </Button>
        <input
          type="range"
          min={first}
          max={now.last_slot}
          value={slot}
          aria-label="Slot of the log"
          aria-valuetext={`slot ${slot} of ${now.last_slot}`}
          onInput={(event) => choose(Number(event.currentTarget.value))}
        />
        <Button isDisabled={slot >= now.last_slot} label="Next slot" onClick={() => choose(slot + 1)}>
          ›
        </Button>
        <output>
          slot {slot} of {now.last_slot}
        </output>
      </div>
      {error !== null && <Problem error={error} />}
      <div class="slot-facts">
        <Badge tone={now.phase === "running" ? "live" : "calm"}>{now.phase}</Badge>
        {commit && <span class="muted">{formatTime(commit.time)}</span>}
        <Button icon="fork" onClick={() => onFork(now.slot)}>
          Fork from here
        </Button>
      </div>
      {commit && (
        <p class="slot-events">
          {commit.events.map((event) => (
            <code>{event}</code>
          ))}
        </p>
      )}
      {now.differs.length > 0 && (
        <Problem error={`Folding the log again gives another result in ${plural(now.differs.length, "slot")}.`} />
      )}
      <Tabs
        label="State"
        tabs={[
          { id: "changes", text: "What changed", count: changes.changes.length },
          { id: "state", text: "Whole state" },
        ]}
        current={tab}
        onChange={setTab}
      />
      {tab === "state" ? (
        <DataBlock source={JSON.stringify(now.state)} label={`State after slot ${now.slot}`} />
      ) : (
        <div class="changes">
          {changes.changes.length === 0 && <p class="muted">Nothing.</p>}
          {changes.changes.map((change) => (
            <div class="change">
              <code class="change-path">
                <Visible text={change.path || "(all)"} />
              </code>
              {change.before !== undefined && <Value sign="-" value={change.before} />}
              {change.after !== undefined && <Value sign="+" value={change.after} />}
            </div>
          ))}
          {changes.hasMore && <p class="hint">There are more changes; see the whole state.</p>}
        </div>
      )}
    </div>
  );
}

const SHOWN_MAX = 300;

function Value({ sign, value }: { sign: "+" | "-"; value: unknown }) {
  const [isOpen, setOpen] = useState(false);
  const text = typeof value === "string" ? value : JSON.stringify(value, null, isOpen ? 2 : undefined);
  return (
    <div class={sign === "+" ? "line-added" : "line-removed"}>
      {sign}{" "}
      {isOpen ? (
        <DataBlock source={typeof value === "string" ? value : JSON.stringify(value)} label="Value" />
      ) : (
        <Visible text={text.slice(0, SHOWN_MAX)} />
      )}
      {text.length > SHOWN_MAX && !isOpen && (
        <button type="button" class="link" onClick={() => setOpen(true)}>
          {" "}
          … show all {text.length.toLocaleString("en")} characters
        </button>
      )}
    </div>
  );
}

// Sessions that views follow. One watch for each session; the events of a frame are drawn at once.

import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { rpc } from "./connection.ts";
import { SessionView } from "./fold.ts";
import type { RpcError } from "./rpc.ts";

export interface Followed {
  id: string;
  view: SessionView;
  /** Changes whenever `view` does. */
  rev: Signal<number>;
  /** Whether the events up to now have arrived. */
  error: Signal<RpcError | null>;
}

interface Entry extends Followed {
  users: number;
  stop: (() => void) | null;
}

/** Sessions that are kept after their view was left, so that the way back is fast. */
const KEPT_MAX = 4;
const entries = new Map<string, Entry>();

function open(id: string): Entry {
  const known = entries.get(id);
  if (known !== undefined) {
    entries.delete(id);
    entries.set(id, known);
    return known;
  }
  const entry: Entry = { id, view: new SessionView(), rev: signal(0), error: signal(null), users: 0, stop: null };
  entries.set(id, entry);
  return entry;
}

function follow(entry: Entry): void {
  if (entry.stop !== null) return;
  const changed = paced(() => {
    entry.rev.value += 1;
  });
  entry.stop = rpc.watch(entry.id, entry.view.seq, {
    event(method, envelope) {
      entry.view.fold(method, envelope);
      changed();
    },
    reset(isPartial) {
      entry.view = new SessionView();
      entry.view.isPartial = isPartial;
      changed();
    },
    failed(error) {
      entry.error.value = error;
      entry.stop = null;
    },
  });
}

/** A draw that takes longer is followed by a pause as long as itself: events that come meanwhile share the next one. */
const DRAW_MS_MAX = 30;

/** Returns a function that asks for a draw: once for all that changes until then. */
function paced(draw: () => void): () => void {
  let isScheduled = false;
  let isDrawing = false;
  const ask = () => {
    if (isScheduled) return;
    isScheduled = true;
    if (!isDrawing) nextFrame(run);
  };
  const run = () => {
    isScheduled = false;
    isDrawing = true;
    const began = performance.now();
    draw();
    // A timer of now runs after the frame is painted.
    setTimeout(() => {
      const took = performance.now() - began;
      setTimeout(drawn, took > DRAW_MS_MAX ? took : 0);
    });
  };
  const drawn = () => {
    isDrawing = false;
    if (isScheduled) nextFrame(run);
  };
  return ask;
}

/** A frame, or a short time where the page is hidden and has no frames. */
function nextFrame(task: () => void): void {
  if (document.visibilityState === "visible") requestAnimationFrame(task);
  else setTimeout(task, 200);
}

function release(entry: Entry): void {
  entry.users -= 1;
  if (entry.users > 0) return;
  entry.stop?.();
  entry.stop = null;
  entry.error.value = null;
  const idle = [...entries.values()].filter((other) => other.users === 0);
  for (const old of idle.slice(0, Math.max(0, idle.length - KEPT_MAX))) entries.delete(old.id);
}

/** Follows a session while the component is shown. */
export function useSession(id: string): Followed {
  const entry = useMemo(() => open(id), [id]);
  useEffect(() => {
    entry.users += 1;
    follow(entry);
    return () => release(entry);
  }, [entry]);
  void entry.rev.value;
  return entry;
}

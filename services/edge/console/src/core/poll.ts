// Lists that are read again and again while the page is visible and connected.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { connection, rpc } from "./connection.ts";
import type { RpcError } from "./rpc.ts";

export interface Polled<T> {
  data: T | undefined;
  error: RpcError | undefined;
  isLoading: boolean;
  refresh(): void;
}

/** Reads once, and every `everyMs` while visible; at once when `params` change or the connection is back. */
export function usePoll<T>(method: string, params: Record<string, unknown> | null, everyMs: number | null): Polled<T> {
  const [data, setData] = useState<T>();
  const [error, setError] = useState<RpcError>();
  const [isLoading, setLoading] = useState(true);
  const key = params === null ? "" : JSON.stringify(params);
  const refresh = useRef(() => {});
  useEffect(() => {
    if (params === null) return;
    let isCurrent = true;
    let isRunning = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = () => {
      if (timer !== undefined) clearTimeout(timer);
      if (isRunning || document.visibilityState === "hidden" || connection.peek().kind !== "open") {
        schedule();
        return;
      }
      isRunning = true;
      rpc
        .call<T>(method, params)
        .then(
          (result) => {
            if (!isCurrent) return;
            setData(result);
            setError(undefined);
          },
          (failed: RpcError) => {
            if (isCurrent) setError(failed);
          },
        )
        .finally(() => {
          isRunning = false;
          if (!isCurrent) return;
          setLoading(false);
          schedule();
        });
    };
    const schedule = () => {
      if (timer !== undefined) clearTimeout(timer);
      if (isCurrent && everyMs !== null) timer = setTimeout(read, everyMs);
    };
    setLoading(true);
    refresh.current = read;
    const isVisible = () => document.visibilityState === "visible" && read();
    document.addEventListener("visibilitychange", isVisible);
    const unsubscribe = connection.subscribe((state) => {
      if (state.kind === "open") read();
    });
    return () => {
      isCurrent = false;
      if (timer !== undefined) clearTimeout(timer);
      document.removeEventListener("visibilitychange", isVisible);
      unsubscribe();
    };
  }, [method, key, everyMs]);
  return { data, error, isLoading, refresh: () => refresh.current() };
}

/** The time, once a second while the page is visible: for ages and countdowns. */
export const clock = signal(Date.now());

export function startClock(): void {
  setInterval(() => {
    if (document.visibilityState === "visible") clock.value = Date.now();
  }, 1000);
}

// Keys that work in the whole console. A view adds its own while it is shown.

import { useLayoutEffect } from "preact/hooks";

export interface Shortcut {
  /** `g s` is one key after the other. */
  keys: string;
  text: string;
  run: () => void;
}

const active: Shortcut[] = [];
/** How long the second key may take. */
const SEQUENCE_MS = 1200;
let first = "";
let firstAt = 0;

export function shortcuts(): Shortcut[] {
  return [...active];
}

/** Registers keys while the component is shown. A later one goes before an earlier one. */
export function useKeys(list: Shortcut[]): void {
  // Before the next key, so that it finds what the last one changed.
  useLayoutEffect(() => {
    active.unshift(...list);
    return () => {
      for (const shortcut of list) active.splice(active.indexOf(shortcut), 1);
    };
  });
}

export function followKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    const isTyping = target.closest("input, textarea, select, [contenteditable]") !== null;
    if (isTyping) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]") !== null) return;
    // Enter and Space belong to the control that has the focus.
    if ((event.key === "Enter" || event.key === " ") && target.closest("button, a, summary, [role=tab]") !== null)
      return;
    const now = Date.now();
    const sequence = first !== "" && now - firstAt < SEQUENCE_MS ? `${first} ${event.key}` : "";
    const found =
      active.find((shortcut) => shortcut.keys === sequence) ?? active.find((shortcut) => shortcut.keys === event.key);
    const isFirst = active.some((shortcut) => shortcut.keys.startsWith(`${event.key} `));
    [first, firstAt] = found === undefined && isFirst ? [event.key, now] : ["", 0];
    if (found === undefined) return;
    event.preventDefault();
    found.run();
  });
}

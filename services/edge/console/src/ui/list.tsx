// A list that draws only the rows in sight. Rows have any height, which is measured.

import {
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
  type VirtualizerOptions,
} from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";

type Lister = Virtualizer<HTMLElement, HTMLElement>;

export interface ListHandle {
  scrollToIndex(index: number, align?: "start" | "center" | "end" | "auto"): void;
  isAtEnd(): boolean;
}

interface Props {
  count: number;
  estimate: number | ((index: number) => number);
  keyOf: (index: number) => string;
  render: (index: number) => ComponentChildren;
  /** Whether the list stays at its end when rows are added while the end is in sight. */
  followEnd?: boolean;
  handle?: { current: ListHandle | null };
  class?: string;
  label?: string;
  role?: "list" | "rowgroup" | "none";
  overscan?: number;
}

const NEAR_END_PX = 80;

export function VirtualList(props: Props) {
  const { count, estimate, keyOf, render, followEnd = false, overscan = 8, role = "list" } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const isAtEnd = useRef(true);
  const lister = useRef<Lister | undefined>(undefined);
  const options: VirtualizerOptions<HTMLElement, HTMLElement> = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: typeof estimate === "number" ? () => estimate : estimate,
    getItemKey: keyOf,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    measureElement,
    overscan,
    onChange: redraw as () => void,
    initialRect: { width: 800, height: 800 },
    indexAttribute: "data-index",
  };
  if (lister.current === undefined) lister.current = new Virtualizer<HTMLElement, HTMLElement>(options);
  const current = lister.current;
  current.setOptions({ ...current.options, ...options });

  useLayoutEffect(() => current._didMount(), []);
  useLayoutEffect(() => current._willUpdate());
  const items = current.getVirtualItems();
  const total = current.getTotalSize();

  // The end stays in sight while text streams into the last row.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (followEnd && isAtEnd.current && element !== null) element.scrollTop = element.scrollHeight;
  }, [total, followEnd, count]);
  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const scrolled = () => {
      isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    };
    element.addEventListener("scroll", scrolled, { passive: true });
    return () => element.removeEventListener("scroll", scrolled);
  }, []);
  if (props.handle !== undefined) {
    props.handle.current = {
      scrollToIndex: (index, align = "auto") => current.scrollToIndex(index, { align }),
      isAtEnd: () => isAtEnd.current,
    };
  }
  const itemRole = role === "list" ? "listitem" : undefined;
  return (
    <div
      class={`list ${props.class ?? ""}`}
      ref={scroller}
      tabIndex={0}
      aria-label={props.label}
      role={role === "list" ? "region" : role === "rowgroup" ? "rowgroup" : undefined}
    >
      <div class="list-inner" role={role === "list" ? "list" : undefined} style={{ height: `${total}px` }}>
        {items.map((item) => (
          <div
            key={item.key}
            data-index={item.index}
            ref={current.measureElement as (element: HTMLDivElement | null) => void}
            class="list-row"
            role={itemRole}
            style={{ transform: `translateY(${item.start}px)` }}
          >
            {render(item.index)}
          </div>
        ))}
      </div>
    </div>
  );
}

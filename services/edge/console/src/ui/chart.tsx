// Pictures of numbers: bars over time, shares, and ranges. Each has the same numbers as text.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface TimeBar {
  start: number;
  value: number;
  /** The part of `value` that failed. */
  bad?: number;
  /** The bar in words, such as `14:00: 3 sessions`. */
  text: string;
}

const WIDTH = 480;
const HEIGHT = 96;

/** Bars by time. The text of the bar under the pointer, or else `summary`, is below them. */
export function TimeBars({
  bars,
  label,
  summary,
  from,
}: {
  bars: TimeBar[];
  label: string;
  summary: string;
  from: string;
}) {
  const [pointed, setPointed] = useState<number | null>(null);
  const most = Math.max(...bars.map((bar) => bar.value), Number.MIN_VALUE);
  const step = WIDTH / Math.max(1, bars.length);
  const point = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    setPointed(Math.min(bars.length - 1, Math.floor(((event.clientX - box.left) / box.width) * bars.length)));
  };
  return (
    <figure>
      <svg
        class="chart"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${label}: ${summary}`}
        onPointerMove={point}
        onPointerLeave={() => setPointed(null)}
      >
        {bars.map((bar, index) => {
          const height = Math.max(1, (bar.value / most) * (HEIGHT - 6));
          const bad = ((bar.bad ?? 0) / most) * (HEIGHT - 6);
          const [x, width] = [index * step + step * 0.1, step * 0.8];
          return (
            <>
              <rect
                class={bar.value === 0 ? "chart-none" : index === pointed ? "chart-pointed" : ""}
                x={x}
                width={width}
                y={HEIGHT - height}
                height={height}
              />
              {bad > 0 && <rect class="chart-bad" x={x} width={width} y={HEIGHT - bad} height={bad} />}
            </>
          );
        })}
      </svg>
      <figcaption class="chart-labels">
        <span>{from}</span>
        <span class="chart-value">{pointed === null ? summary : bars[pointed]?.text}</span>
        <span>now</span>
      </figcaption>
      <ul class="sr-only">
        {bars
          .filter((bar) => bar.value > 0)
          .map((bar) => (
            <li>{bar.text}</li>
          ))}
      </ul>
    </figure>
  );
}

/** Parts of a whole, the largest first. */
export function Shares({
  parts,
  noun,
}: {
  parts: { name: ComponentChildren; value: number; isBad?: boolean }[];
  noun: string;
}) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  const most = Math.max(1, ...parts.map((part) => part.value));
  const sorted = [...parts].sort((a, b) => b.value - a.value);
  return (
    <table class="plain shares">
      <caption class="sr-only">{noun}</caption>
      <tbody>
        {sorted.map((part) => (
          <tr>
            <th scope="row">{part.name}</th>
            <td class="share-track">
              <i class={part.isBad ? "is-bad" : ""} style={{ width: `${(part.value / most) * 100}%` }} />
            </td>
            <td class="number">{part.value.toLocaleString("en")}</td>
            <td class="number muted">{total > 0 ? Math.round((part.value / total) * 100) : 0} %</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Position of a time on an axis on which each power of ten is as long as the next. */
function place(ms: number, most: number): number {
  return most <= 1 ? 0 : Math.min(1, Math.log10(Math.max(1, ms)) / Math.log10(most));
}

/** From the median to the 95th percentile, on a logarithmic axis that all rows of a table share. */
export function Range({ p50, p95, most }: { p50: number; p95: number; most: number }) {
  const [from, to] = [place(p50, most), place(p95, most)];
  return (
    <span class="range" aria-hidden="true">
      <i class="range-line" style={{ left: `${from * 100}%`, width: `${Math.max(0, to - from) * 100}%` }} />
      <i class="range-mid" style={{ left: `${from * 100}%` }} />
      <i class="range-end" style={{ left: `${to * 100}%` }} />
    </span>
  );
}

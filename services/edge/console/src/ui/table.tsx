// Tables whose columns say both their heads and their cells, and lists of names with values.

import type { ComponentChildren } from "preact";
import { formatDuration } from "../core/format.ts";

export interface Column<T> {
  head: string;
  cell: (row: T) => ComponentChildren;
  isNumber?: boolean;
  /** What the head means. */
  title?: string;
  /** Whether only a screen reader has the head. */
  isHeadHidden?: boolean;
  cellClass?: (row: T) => string | false;
  cellTitle?: (row: T) => string;
}

interface TableProps<T> {
  columns: Column<T>[];
  rows: readonly T[];
  class?: string;
  caption?: string;
  /** Rows of another kind, after the others. */
  children?: ComponentChildren;
}

export function Table<T>({ columns, rows, class: name, caption, children }: TableProps<T>) {
  const classOf = (column: Column<T>, more: string | false = false) =>
    [column.isNumber && "number", more].filter(Boolean).join(" ") || undefined;
  return (
    <table class={["plain", name].filter(Boolean).join(" ")}>
      {caption && <caption class="sr-only">{caption}</caption>}
      <thead>
        <tr>
          {columns.map((column) => (
            <th scope="col" class={classOf(column)} title={column.title}>
              {column.isHeadHidden ? <span class="sr-only">{column.head}</span> : column.head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr>
            {columns.map((column) => (
              <td class={classOf(column, column.cellClass?.(row))} title={column.cellTitle?.(row)}>
                {column.cell(row)}
              </td>
            ))}
          </tr>
        ))}
        {children}
      </tbody>
    </table>
  );
}

/** How long half of some calls took at most, and nearly all of them. */
export function percentileColumns<T>(percentilesOf: (row: T) => { p50: number; p95: number } | null): Column<T>[] {
  const cell = (pick: "p50" | "p95") => (row: T) => {
    const found = percentilesOf(row);
    return found === null ? "–" : formatDuration(found[pick]);
  };
  return [
    { head: "50 %", isNumber: true, title: "Half of the calls took at most this long", cell: cell("p50") },
    { head: "95 %", isNumber: true, title: "95 of 100 calls took at most this long", cell: cell("p95") },
  ];
}

/** A name with its value, in a list of definitions. */
export function Pair({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Numbers in a row, each below its name. */
export function Figures({ figures, class: more = "" }: { figures: [string, string][]; class?: string }) {
  return (
    <dl class={`numbers ${more}`}>
      {figures.map(([name, figure]) => (
        <Pair name={name}>{figure}</Pair>
      ))}
    </dl>
  );
}

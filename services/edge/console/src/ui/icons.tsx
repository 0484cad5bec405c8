// Line icons of 16 by 16, drawn here so that no font or request is needed.

const PATHS = {
  overview: "M2 13V9m4 4V3m4 10V6m4 7v-3",
  sessions: "M3 4h10M3 8h10M3 12h6",
  inbox: "M2 9l2-6h8l2 6v4H2zM2 9h3.5l1 2h3l1-2H14",
  start: "M5 3l8 5-8 5z",
  tools: "M9.5 4.5a3 3 0 0 1 4-1L11.5 5.5l.5 1.5 1.5.5 2-2a3 3 0 0 1-4.5 3L5.5 14 3 11.5z",
  agents: "M8 7a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 14c.5-3 2.5-4.5 5-4.5s4.500 1.500 5 4.500",
  models: "M8 2l6 3-6 3-6-3zM2 8l6 3 6-3M2 11l6 3 6-3",
  mail: "M2 4h12v8H2zM2 4.500l6 4.500 6-4.500",
  dead: "M3 5h10l-1 9H4zM6 5V2.500h4V5M6.500 8v3.500M9.500 8v3.500",
  fleet: "M2 3h12v4H2zM2 9h12v4H2zM4.500 5h.1M4.500 11h.1",
  compare: "M6 3H2v10h4M10 3h4v10h-4M8 1.500v13",
  warning: "M8 2l6.500 11.500h-13zM8 6.500v3M8 11.500v.1",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  pause: "M5 3v10M11 3v10",
  stop: "M4 4h8v8H4z",
  send: "M2 8l12-5-4 11-2.500-4.500z",
  fork: "M4 2v4a4 4 0 0 0 4 4h4M9.500 7.500L12 10l-2.500 2.500M4 6v8",
  check: "M3 8.500l3.500 3.500L13 4.500",
  more: "M3 8h.1M8 8h.1M13 8h.1",
  light:
    "M8 5.200A2.800 2.800 0 1 0 8 10.800 2.800 2.800 0 0 0 8 5.200zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  keys: "M2 4h12v8H2zM4.500 6.500h.1M7 6.500h.1M9.500 6.500h.1M5 9.500h6",
  chevron: "M6 3.500L10.500 8 6 12.500",
  back: "M10 3L5 8l5 5",
  user: "M8 7a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM3 14c.5-3 2.500-4.500 5-4.500s4.500 1.500 5 4.500",
  image: "M2 3h10.500v10H2zM2 11l3-3 2.500 2.500L9.500 8l3 3M5.500 6h.1",
  tree: "M3 2v11M3 6h5M3 11h5M10.500 4h3v3.500h-3zM10.500 9.500h3V13h-3z",
  down: "M8 3v10M3.500 8.500L8 13l4.500-4.500",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

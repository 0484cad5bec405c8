// Light or dark: as the system says, unless a person has chosen.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const NAME = "ailoop.theme";
const THEMES: Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>(read());

function read(): Theme {
  const stored = localStorage.getItem(NAME) as Theme | null;
  return stored !== null && THEMES.includes(stored) ? stored : "system";
}

export function applyTheme(): void {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
  localStorage.setItem(NAME, theme.value);
  applyTheme();
}

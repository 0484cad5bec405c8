// Small parts that all views share.

import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { errorText } from "../core/connection.ts";
import { formatAge, formatTime, words } from "../core/format.ts";
import type { SessionView } from "../core/fold.ts";
import { clock } from "../core/poll.ts";
import type { GateKind, Phase } from "../core/types.ts";
import { Icon, type IconName } from "./icons.tsx";

export type Tone = "live" | "wait" | "bad" | "good" | "calm";

export function Badge({ tone, children, title }: { tone: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class={`badge badge-${tone}`} title={title}>
      <span class="dot" aria-hidden="true" />
      {children}
    </span>
  );
}

/** What a session does, or whom it waits for. */
export function phaseOf(session: {
  phase: Phase;
  stop_reason?: string;
  gates?: { kind: GateKind }[];
  client_calls?: unknown[];
}): { tone: Tone; text: string } {
  const gate = session.gates?.[0];
  if (session.phase !== "ended" && gate !== undefined) return { tone: "wait", text: gateVerb(gate.kind) };
  if (session.phase !== "ended" && (session.client_calls?.length ?? 0) > 0)
    return { tone: "wait", text: "client call" };
  if (session.phase === "running") return { tone: "live", text: "running" };
  if (session.phase === "paused") return { tone: "wait", text: "paused" };
  const reason = session.stop_reason ?? "";
  const tone = isFailure(reason) ? "bad" : reason === "completed" ? "good" : "calm";
  if (session.phase === "idle")
    return isFailure(reason) ? { tone, text: words(reason) } : { tone: "calm", text: "idle" };
  return { tone, text: reason === "" ? "ended" : words(reason) };
}

/** The state of a session that is followed, as `phaseOf` shows one of a list. */
export function stateOf(view: SessionView): { tone: Tone; text: string } {
  return phaseOf({
    phase: view.phase === "new" ? "idle" : view.phase,
    gates: view.openGates().map((gate) => ({ kind: gate.gateKind })),
    client_calls: view.openCalls().filter((call) => call.state === "client"),
    stop_reason: view.stopReason,
  });
}

export function gateVerb(kind: GateKind): string {
  if (kind === "approval") return "asks approval";
  if (kind === "question") return "asks you";
  return "limit" in kind ? "asks: limit" : "asks: error";
}

/** Stop reasons after which a turn did not do what was asked. */
export function isFailure(reason: string): boolean {
  return reason !== "" && reason !== "completed" && reason !== "stopped";
}

export function Age({ at }: { at: string }) {
  return (
    <time dateTime={at} title={formatTime(at)}>
      {formatAge(at, clock.value)}
    </time>
  );
}

interface ButtonProps {
  children?: ComponentChildren;
  onClick?: () => unknown;
  kind?: "primary" | "danger" | "plain" | "good" | "edit";
  icon?: IconName;
  isDisabled?: boolean;
  title?: string;
  type?: "button" | "submit";
  label?: string;
}

/** A button that is busy until the promise of its action is settled, and shows why it failed. */
export function Button({
  children,
  onClick,
  kind = "plain",
  icon,
  isDisabled,
  title,
  type = "button",
  label,
}: ButtonProps) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const isMounted = useRef(true);
  useEffect(
    () => () => {
      isMounted.current = false;
    },
    [],
  );
  const click = () => {
    const result = onClick?.();
    if (!(result instanceof Promise)) return;
    setBusy(true);
    setError("");
    result
      .catch((failed) => isMounted.current && setError(errorText(failed)))
      .finally(() => isMounted.current && setBusy(false));
  };
  return (
    <>
      <button
        type={type}
        class={`button button-${kind}`}
        disabled={isDisabled || isBusy}
        aria-busy={isBusy}
        title={title}
        aria-label={label}
        onClick={onClick && click}
      >
        {icon && <Icon name={icon} />}
        {children}
      </button>
      {error !== "" && (
        <span class="inline-error" role="alert">
          {error}
        </span>
      )}
    </>
  );
}

export function Problem({ error, children }: { error: unknown; children?: ComponentChildren }) {
  return (
    <div class="problem" role="alert">
      <Icon name="warning" />
      <div>
        {errorText(error)}
        {children}
      </div>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
    </div>
  );
}

export function PageHead({
  title,
  children,
  sub,
}: {
  title: ComponentChildren;
  children?: ComponentChildren;
  sub?: ComponentChildren;
}) {
  return (
    <header class="page-head">
      <div class="page-title">
        <h1>{title}</h1>
        {sub && <div class="muted">{sub}</div>}
      </div>
      <div class="page-actions">{children}</div>
    </header>
  );
}

/** A card under its title. */
export function Section({
  title,
  label,
  class: more = "",
  children,
}: {
  title: string;
  label?: string;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    <section class="section" aria-label={label}>
      <h2>{title}</h2>
      <div class={`card ${more}`}>{children}</div>
    </section>
  );
}

interface TabsProps<T extends string> {
  tabs: { id: T; text: string; count?: number }[];
  current: T;
  onChange: (id: T) => void;
  label: string;
}

export function Tabs<T extends string>({ tabs, current, onChange, label }: TabsProps<T>) {
  const move = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const index = tabs.findIndex((tab) => tab.id === current);
    const next = tabs[(index + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    onChange(next.id);
    event.preventDefault();
    const bar = event.currentTarget;
    requestAnimationFrame(() => bar.querySelector<HTMLElement>('[aria-selected="true"]')?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          type="button"
          role="tab"
          aria-selected={tab.id === current}
          tabIndex={tab.id === current ? 0 : -1}
          onClick={() => onChange(tab.id)}
        >
          {tab.text}
          {tab.count !== undefined && tab.count > 0 && <span class="count">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}

/** A modal dialog: focus stays in it, and Escape closes it if it may be closed. */
export function Dialog({
  title,
  children,
  onClose,
}: {
  title: string;
  children: ComponentChildren;
  onClose?: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
    return () => dialog.current?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onClick={(event) => event.target === dialog.current && onClose?.()}
    >
      <div class="dialog">
        <header>
          <h2>{title}</h2>
          {onClose && <Button icon="close" label="Close" onClick={onClose} />}
        </header>
        {children}
      </div>
    </dialog>
  );
}

/**
 * Gives the focus to an element when it is drawn first, as its `ref`. The attribute `autofocus` does so only as long as
 * nothing of the page has had the focus, and in a dialog that opens.
 */
export function takeFocus(element: HTMLElement | null): void {
  element?.focus();
}

export function Field({
  label,
  children,
  hint,
}: {
  label: string;
  children: ComponentChildren;
  hint?: ComponentChildren;
}) {
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      {children}
      {hint && <span class="hint">{hint}</span>}
    </label>
  );
}

interface JsonFieldProps {
  label: string;
  hint: string;
  /** What is wrong with the value; it takes the place of the hint. */
  error?: string;
  value: string;
  onChange: (value: string) => void;
  /** Rows of the box: as many as the text has and one more, within these. */
  rows: [least: number, most: number];
  takesFocus?: boolean;
}

/** JSON that a person writes. */
export function JsonField({ label, hint, error, value, onChange, rows, takesFocus = false }: JsonFieldProps) {
  const [least, most] = rows;
  return (
    <Field label={label} hint={error === undefined ? hint : <span class="inline-error">{error}</span>}>
      <textarea
        ref={takesFocus ? takeFocus : undefined}
        class="code-input"
        rows={Math.min(most, Math.max(least, value.split("\n").length + 1))}
        value={value}
        spellcheck={false}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </Field>
  );
}

/** A share of a whole, as a bar with its text. */
export function Meter({
  value,
  max,
  label,
  tone = "calm",
}: {
  value: number;
  max: number;
  label: string;
  tone?: Tone;
}) {
  const percent = max > 0 ? Math.min(100, (value / max) * 100) : 0;
  return (
    <div
      class={`meter meter-${tone}`}
      role="meter"
      aria-label={label}
      aria-valuenow={value}
      aria-valuemin={0}
      aria-valuemax={max}
    >
      <div class="meter-fill" style={{ width: `${percent}%` }} />
    </div>
  );
}

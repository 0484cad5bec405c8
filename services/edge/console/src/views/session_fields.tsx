// Fields that every form which begins a session has.

import { usePoll } from "../core/poll.ts";
import type { Agent, AgentList, Model, ModelList } from "../core/types.ts";
import { Field } from "../ui/parts.tsx";

interface ChoiceProps {
  value: string;
  onChange: (value: string) => void;
}

/** Chooses an agent; `unset` says what an empty choice means. */
export function AgentField({ value, onChange, unset }: ChoiceProps & { unset: (agents: Agent[]) => string }) {
  const agents = usePoll<AgentList>("agents.list", {}, null).data?.agents ?? [];
  return (
    <Field label="Agent">
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">{unset(agents)}</option>
        {agents.map((other) => (
          <option value={other.id}>{other.name}</option>
        ))}
      </select>
    </Field>
  );
}

/** Chooses a model; `unset` says what an empty choice means. */
export function ModelField({
  value,
  onChange,
  unset,
  nameOf,
}: ChoiceProps & { unset: string; nameOf: (model: Model) => string }) {
  const models = usePoll<ModelList>("models.list", {}, null).data?.models ?? [];
  return (
    <Field label="Model">
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">{unset}</option>
        {models.map((other) => (
          <option value={other.id}>{nameOf(other)}</option>
        ))}
      </select>
    </Field>
  );
}

/** Whether the session waits for more messages after its turn. */
export function InteractiveField({ value, onChange }: { value: boolean; onChange: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => onChange(event.currentTarget.checked)} /> It takes
      more messages after its turn
    </label>
  );
}

// Two sessions side by side: messages, replies, calls, decisions and costs of each step.

import { useMemo, useState } from "preact/hooks";
import { type Pair, pairSteps, type Step } from "../core/compare.ts";
import type { SessionView } from "../core/fold.ts";
import { formatCount, formatDuration, formatMoney, plural, shortId } from "../core/format.ts";
import { links, route } from "../core/route.ts";
import { useSession } from "../core/store.ts";
import { Diff } from "../ui/diff.tsx";
import { Badge, Empty, PageHead, Problem, stateOf } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";
import { callTone, Source, summarize } from "./conversation.tsx";

export function CompareView() {
  const { query } = route.value;
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""];
  if (a === "" || b === "" || a === b)
    return (
      <div class="page">
        <Empty title="Choose two sessions">
          Mark one with <kbd>c</kbd> in the <a href={links.sessions()}>list of sessions</a>, then another one.
        </Empty>
      </div>
    );
  return <Comparison key={`${a} ${b}`} a={a} b={b} />;
}

function Comparison({ a, b }: { a: string; b: string }) {
  const [left, right] = [useSession(a), useSession(b)];
  const [onlyChanges, setOnlyChanges] = useState(false);
  const pairs = useMemo(() => pairSteps(left.view, right.view), [left.view, right.view, left.view.rev, right.view.rev]);
  const changed = pairs.filter((pair) => !pair.isSame);
  const error = left.error.value ?? right.error.value;
  return (
    <div class="page">
      <PageHead title="Compare" sub={`${plural(changed.length, "step")} of ${pairs.length} differ`}>
        <label class="check">
          <input
            type="checkbox"
            checked={onlyChanges}
            onChange={(event) => setOnlyChanges(event.currentTarget.checked)}
          />{" "}
          Only steps that differ
        </label>
        <a class="button" href={links.compare(b, a)}>
          Swap
        </a>
      </PageHead>
      {error && <Problem error={error} />}
      <div class="compare">
        <Side id={a} view={left.view} rev={left.view.rev} />
        <Side id={b} view={right.view} rev={right.view.rev} />
        {(onlyChanges ? changed : pairs).map((pair) => (
          <PairView key={pair.key} pair={pair} />
        ))}
      </div>
    </div>
  );
}

function Side({ id, view }: { id: string; view: SessionView; rev: number }) {
  const state = stateOf(view);
  const calls = view.calls.size;
  return (
    <div class="compare-side section">
      <h2>
        <a href={links.session(id)}>{shortId(id)}</a>
      </h2>
      <div class="facts">
        <Badge tone={state.tone}>{state.text}</Badge>
        <span>{view.agent}</span>
        <span>{view.model}</span>
        <span>{plural(calls, "call")}</span>
        <span>{formatCount(view.spent.usage.input + view.spent.usage.output)} tokens</span>
        <span>{formatMoney(view.spent.cost_usd)}</span>
      </div>
    </div>
  );
}

function PairView({ pair }: { pair: Pair }) {
  const { left, right } = pair;
  const [one, other] = [left?.reply?.text ?? "", right?.reply?.text ?? ""];
  const differs = left === undefined ? "only right" : right === undefined ? "only left" : "differs";
  return (
    <section class="compare-step" aria-label={`Step ${pair.key}`}>
      <h3>
        Step {pair.key} <Badge tone={pair.isSame ? "calm" : "wait"}>{pair.isSame ? "the same" : differs}</Badge>
      </h3>
      {!pair.isSame && left !== undefined && right !== undefined && one !== other && (
        <div class="compare-wide">
          <Diff before={one} after={other} label={`Replies of step ${pair.key}`} />
        </div>
      )}
      <StepSide step={left} isTextShown={pair.isSame || right === undefined || one === other} />
      <StepSide step={right} isTextShown={pair.isSame || left === undefined || one === other} />
    </section>
  );
}

const TEXT_MAX = 1500;

function StepSide({ step, isTextShown }: { step: Step | undefined; isTextShown: boolean }) {
  if (step === undefined) return <div class="compare-side muted">–</div>;
  const { reply, decision, message } = step;
  return (
    <div class="compare-side">
      {message && (
        <p class="prewrap">
          <strong>You:</strong> <Visible text={message.text.slice(0, TEXT_MAX)} isProse />
        </p>
      )}
      {isTextShown && reply && (
        <p class="prewrap">
          <Visible text={reply.text.slice(0, TEXT_MAX)} isProse />
          {reply.text.length > TEXT_MAX && " …"}
        </p>
      )}
      {step.calls.map((call) => (
        <div class="facts">
          <Badge tone={callTone(call.state)}>{call.tool}</Badge>
          <code class="call-summary">
            <Visible text={summarize(call.arguments)} />
          </code>
          <span>{call.durationMs !== undefined && formatDuration(call.durationMs)}</span>
        </div>
      ))}
      <div class="facts">
        {reply && <span>{formatDuration(reply.latencyMs ?? 0)}</span>}
        {reply?.spent && (
          <span>
            {formatCount(reply.spent.usage.input)} → {formatCount(reply.spent.usage.output)} tokens
          </span>
        )}
        {reply?.spent && reply.spent.cost_usd > 0 && <span>{formatMoney(reply.spent.cost_usd)}</span>}
        {decision !== undefined && (
          <span>
            {decision.continues ? "goes on" : "ends"}: <Source source={decision.source} />
          </span>
        )}
      </div>
    </div>
  );
}

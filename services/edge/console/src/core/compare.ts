// Two sessions side by side, step by step.

import type { CallRow, DecisionRow, ReplyRow, SessionView, UserRow } from "./fold.ts";

export interface Step {
  key: string;
  turn: number;
  step: number;
  message?: UserRow;
  reply?: ReplyRow;
  calls: CallRow[];
  decision?: DecisionRow;
}

/** The steps of a session, with what belongs to each. A message belongs to the step after it. */
export function stepsOf(view: SessionView): Map<string, Step> {
  const steps = new Map<string, Step>();
  let message: UserRow | undefined;
  const at = (turn: number, step: number): Step => {
    const key = `${turn}.${step}`;
    let found = steps.get(key);
    if (found === undefined) {
      found = { key, turn, step, calls: [] };
      steps.set(key, found);
    }
    return found;
  };
  for (const row of view.rows) {
    if (row.kind === "user") message = row;
    else if (row.kind === "reply") {
      const step = at(row.turn, row.step);
      step.reply = row;
      step.message = message;
      message = undefined;
    } else if (row.kind === "call") at(row.turn, row.step).calls.push(row);
    else if (row.kind === "decision") at(row.turn, row.iteration).decision = row;
  }
  return steps;
}

export interface Pair {
  key: string;
  left?: Step;
  right?: Step;
  isSame: boolean;
}

/** Pairs the steps of two sessions by turn and number. */
export function pairSteps(left: SessionView, right: SessionView): Pair[] {
  const [a, b] = [stepsOf(left), stepsOf(right)];
  const keys = [...new Set([...a.keys(), ...b.keys()])].sort((x, y) => {
    const [turnX = 0, stepX = 0] = x.split(".").map(Number);
    const [turnY = 0, stepY = 0] = y.split(".").map(Number);
    return turnX - turnY || stepX - stepY;
  });
  return keys.map((key) => {
    const [one, other] = [a.get(key), b.get(key)];
    return {
      key,
      left: one,
      right: other,
      isSame: one !== undefined && other !== undefined && textOf(one) === textOf(other),
    };
  });
}

function textOf(step: Step): string {
  return JSON.stringify([
    step.message?.text,
    step.reply?.text,
    step.calls.map((call) => [call.tool, call.arguments, call.state, call.content]),
  ]);
}

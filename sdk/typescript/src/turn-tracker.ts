// Finds the turn of a message in the events of a session.

import type { Event } from "./event.js";

/**
 * Counts turns and messages, so that the end of the right turn is the end of a message.
 *
 * No event says which messages a turn has read, so this follows the rules: a message begins a turn if none runs, a
 * queued one begins a turn of its own after those that wait, and any other is read in the turn that runs.
 */
export class TurnTracker {
  constructor(
    /** The last `seq` that was taken. */
    public seq = 0,
    public isRunning = false,
    private queued = 0,
  ) {}

  /** A tracker that goes on from the same place. */
  copy(): TurnTracker {
    return new TurnTracker(this.seq, this.isRunning, this.queued);
  }

  /** Takes the next event of the log. For a message, returns how many turns end until its own has ended. */
  push(event: Event): number {
    this.seq = event.seq ?? this.seq;
    if (event.topic === "turn.completed") {
      // The next queued message begins a turn at once.
      this.isRunning = this.queued > 0;
      this.queued = Math.max(this.queued - 1, 0);
      return 0;
    }
    if (event.topic !== "message.user_processed") return 0;
    if (!this.isRunning) {
      this.isRunning = true;
      return 1;
    }
    if (event.data["mode"] !== "queue") return 1;
    this.queued += 1;
    return 1 + this.queued;
  }
}

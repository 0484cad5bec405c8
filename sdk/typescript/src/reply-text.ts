// The text of one reply, for readers that cannot take text back.

import type { Event } from "./event.js";

/** Turns the chunks of a reply into text that is yielded once. A reply may be streamed by several attempts. */
export class ReplyText {
  private attempt: [number, number] = [0, 0];
  private index = -1;
  private streamed = "";
  /** Whether chunks were lost. The rest then comes with the whole reply. */
  private hasGap = false;
  private given = "";

  /** Whether some text was yielded. */
  get isBegun(): boolean {
    return this.given !== "";
  }

  /** Takes a chunk, and returns the text that is new. A snapshot has all the text so far. */
  push(event: Event<"message.ai_chunk_received">): string {
    const { attempt: text, index, channel, delta } = event.data;
    const order = compare(parseAttempt(text), this.attempt);
    if (order < 0) return "";
    if (order > 0) {
      [this.attempt, this.index, this.streamed, this.hasGap] = [parseAttempt(text), -1, "", false];
    }
    if (index <= this.index) return "";
    if (event.isSnapshot) [this.streamed, this.hasGap] = [delta, false];
    else if (index !== this.index + 1) this.hasGap = true;
    else if (channel === "text") this.streamed += delta;
    this.index = index;
    if (this.hasGap || !this.streamed.startsWith(this.given)) return "";
    const more = this.streamed.slice(this.given.length);
    this.given = this.streamed;
    return more;
  }

  /** Takes the whole reply, and returns what was not yielded. A reply that differs is a paragraph of its own. */
  finish(whole: string): string {
    if (whole.startsWith(this.given)) return whole.slice(this.given.length);
    // A signal at the end of a reply may be cut off after some of the white space before it.
    return whole.trimEnd() === this.given.trimEnd() ? "" : `\n\n${whole}`;
  }
}

function parseAttempt(text: string): [number, number] {
  const [orchestrator, delivery] = text.split(".");
  return [Number(orchestrator), Number(delivery ?? 0)];
}

function compare(a: [number, number], b: [number, number]): number {
  return a[0] - b[0] || a[1] - b[1];
}

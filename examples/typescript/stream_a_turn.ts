// A chat at the terminal: each answer is shown as it is written. An empty line ends it.
//
// Needs the package of sdk/typescript, as its README says, and a fleet (`ailoop up`).
// AILOOP_URL and AILOOP_API_KEY name the fleet and the key.
// If the connection breaks, the text goes on where it was.
import * as readline from "node:readline/promises";

import { Client, TurnFailed } from "@ailoop/client";

const session = await new Client().start(process.argv[2]);
const terminal = readline.createInterface({ input: process.stdin, output: process.stdout, prompt: "> " });

terminal.prompt();
for await (const line of terminal) {
  if (line.trim() === "") break;
  const turn = session.turn(line);
  try {
    for await (const text of turn) process.stdout.write(text);
    const { stopReason, spent } = await turn;
    console.log(`\n(${stopReason}, ${spent.usage.output} tokens)`);
  } catch (error) {
    if (!(error instanceof TurnFailed)) throw error;
    console.error(`\nThe turn failed: ${error.message}. The session goes on.`);
  }
  terminal.prompt();
}
terminal.close();
await session.stop();

// A tool of this program: the agent calls a function here, in a page, an editor or on a device. No server is needed.
//
// Needs the package of sdk/typescript, as its README says, and a fleet (`ailoop up`).
import { Client, clientTool } from "@ailoop/client";

const rain: Record<string, number> = { Bonn: 12, Oslo: 3 };

const weather = clientTool<{ city: string }>({
  name: "weather",
  description: "The rain of a city today, in millimetres.",
  parameters: {
    type: "object",
    properties: { city: { type: "string", description: "Name of the city." } },
    required: ["city"],
    additionalProperties: false,
  },
  effect: "pure", // it changes nothing: after a crash of this program, it may run again
  timeoutMs: 30_000,
  // The fleet does not check the arguments of such a tool. With zod, this is `parse: schema.parse`.
  parse: (value) => {
    const { city } = value as { city?: unknown };
    if (typeof city !== "string") throw new Error("`city` must be a text");
    return { city };
  },
  run: ({ city }, { signal }) => {
    signal.throwIfAborted(); // the call may have ended: by its deadline, or because the session was stopped
    const millimetres = rain[city];
    if (millimetres === undefined) throw new Error(`there is no station in ${city}`); // the model reads this
    return { city, millimetres };
  },
});

const result = await new Client().run(undefined, "What is the weather in Bonn?", { tools: [weather] });
console.log(result.text);

// Where a key is sent, without a fleet.
import assert from "node:assert/strict";
import test from "node:test";

import { AccessDenied, Client } from "../dist/index.js";

test("key is not sent in clear to another machine", () => {
  for (const url of ["http://agents.example.org", "http://10.0.0.1:7070", "http://127.0.0.1.example.org", "http://[fd00::1]"]) {
    const refused = (error) => error instanceof AccessDenied && error.code === "unauthorized" && /plaintext/.test(error.message);
    assert.throws(() => new Client({ url, apiKey: "key" }), refused, url);
  }
});

test("key is sent to this machine, over TLS, or where the program says so", () => {
  for (const url of ["http://127.0.0.1:7070", "http://localhost", "http://[::1]:7070", "https://agents.example.org"]) {
    new Client({ url, apiKey: "key" });
  }
  new Client({ url: "http://agents.example.org", apiKey: "key", plaintext: true });
  new Client({ url: "http://agents.example.org", apiKey: "" });
});

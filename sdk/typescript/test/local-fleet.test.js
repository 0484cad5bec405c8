// The fleet of the working directory, without a fleet.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";

import { findRunFile } from "../dist/local-fleet.js";
import { readAddress } from "../dist/tool/serve.js";
import { Transport } from "../dist/transport.js";

const RUN = { pid: process.pid, http: "http://127.0.0.1:1234", nats: "nats://ailoop:secret@127.0.0.1:1", token: "t" };

/** Runs a function in a directory below one with this run file, without the variables of a fleet. */
function inDirectory(run, check) {
  const [before, { AILOOP_URL, AILOOP_API_KEY }] = [process.cwd(), process.env];
  const directory = mkdtempSync(path.join(tmpdir(), "ailoop-"));
  try {
    delete process.env.AILOOP_URL;
    delete process.env.AILOOP_API_KEY;
    mkdirSync(path.join(directory, ".ailoop"));
    mkdirSync(path.join(directory, "below"));
    writeFileSync(path.join(directory, ".ailoop/run.json"), JSON.stringify({ ...RUN, ...run }));
    process.chdir(path.join(directory, "below"));
    check();
  } finally {
    process.chdir(before);
    Object.assign(process.env, JSON.parse(JSON.stringify({ AILOOP_URL, AILOOP_API_KEY })));
    rmSync(directory, { recursive: true });
  }
}

test("fleet_of_a_directory_above_is_found_with_its_token", () => {
  inDirectory({}, () => {
    const { url, headers } = new Transport({});
    assert.deepEqual([url, headers.authorization], [RUN.http, "Bearer t"]);
  });
});

test("token_goes_to_its_own_fleet_only", () => {
  inDirectory({}, () => {
    const sent = (options) => new Transport(options).headers.authorization;
    assert.equal(sent({ url: `${RUN.http}/` }), "Bearer t");
    assert.equal(sent({ url: "http://127.0.0.1:9" }), undefined);
    assert.equal(sent({ apiKey: "mine" }), "Bearer mine");
  });
});

test("file_that_no_shared_fleet_keeps_is_ignored", () => {
  for (const run of [
    { pid: 2 ** 22 + 1 },
    { one_session: true },
    { pid: 0 },
    { pid: -1 },
    { http: "https://agents.example.org" },
    { nats: "nats://agents.example.org" },
  ]) {
    inDirectory(run, () => assert.equal(findRunFile(), undefined));
  }
});

test("user_and_password_of_an_address_are_those_of_the_connection", () => {
  assert.deepEqual(readAddress("nats://a:1, b:2"), { servers: ["nats://a:1", "b:2"] });
  const found = { servers: ["nats://a:1", "nats://b:2"], user: "u", pass: "p@" };
  assert.deepEqual(readAddress("nats://u:p%40@a:1,nats://b:2"), found);
});

// The fleet that runs in a directory, by the file `.ailoop/run.json` that `ailoop up` keeps there.

/** What the file says. */
export interface RunFile {
  pid: number;
  http?: string;
  /** Address of NATS with its user and password. */
  nats: string;
  token?: string;
  one_session?: boolean;
}

/** Whether an address is one of this machine. */
export function isLoopback(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname === "[::1]" || /^127(\.\d+){3}$/.test(hostname);
}

/**
 * The run file of the fleet in the working directory, else in the nearest one above it; none in a page. Only a fleet of
 * this user on this machine counts: others could lay a file into a directory that everybody writes to, or into a
 * repository, and would be sent prompts.
 */
export function findRunFile(): RunFile | undefined {
  // Without an import of node:fs, so that pages can load this file.
  if (typeof process === "undefined" || !process.getBuiltinModule || !process.geteuid) return undefined;
  const [fs, path] = [process.getBuiltinModule("node:fs"), process.getBuiltinModule("node:path")];
  const user = process.geteuid();
  const read = (file: string): RunFile | undefined => {
    try {
      if ([path.dirname(file), file].some((part) => fs.statSync(part).uid !== user)) return undefined;
      const run = JSON.parse(fs.readFileSync(file, "utf8")) as RunFile;
      process.kill(run.pid, 0); // fails if a fleet that was killed has left the file
      const isHere = [run.http, run.nats].every((address) => !address || isLoopback(address));
      // Other numbers are groups of processes, or the first one.
      return run.pid > 1 && isHere && !run.one_session ? run : undefined;
    } catch {
      return undefined;
    }
  };
  for (let directory = process.cwd(); ; directory = path.dirname(directory)) {
    const run = read(path.join(directory, ".ailoop", "run.json"));
    if (run || directory === path.dirname(directory)) return run;
  }
}

// Builds the console into dist/: one page, hashed scripts and styles, and the licences of what is bundled.
import { build } from "esbuild";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(root, "dist"));

await rm(out, { recursive: true, force: true });
const result = await build({
  absWorkingDir: root,
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  entryNames: "[name]-[hash]",
  chunkNames: "part-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  sourcemap: false,
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});

const names = Object.keys(result.metafile.outputs).map((file) => path.basename(file));
const named = (pattern) => names.find((name) => pattern.test(name));
// The scripts that the first one needs are asked for at once, not after it was read.
const entry = Object.entries(result.metafile.outputs).find(([, output]) => output.entryPoint === "src/main.tsx")?.[1];
const first = entry.imports
  .filter(({ kind }) => kind === "import-statement")
  .map((part) => path.basename(part.path))
  .sort();
const preloads = first.map((name) => `<link rel="modulepreload" href="/console/${name}">`).join("\n");
const page = (await readFile(path.join(root, "src/index.html"), "utf8"))
  .replace("{{script}}", `/console/${named(/^app-.*\.js$/)}`)
  .replace("{{preloads}}", preloads)
  .replace("{{style}}", `/console/${named(/^app-.*\.css$/)}`);
await mkdir(out, { recursive: true });
await writeFile(path.join(out, "index.html"), page);
await writeFile(path.join(out, "licences.txt"), await licences(Object.keys(result.metafile.inputs)));

/** The licence texts of the packages whose files are in the bundle. */
async function licences(inputs) {
  const packages = new Set(
    inputs.map((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]).filter((name) => name !== undefined),
  );
  const texts = [];
  for (const name of [...packages].sort()) {
    const folder = path.join(root, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    const candidates = ["LICENSE", "LICENSE.md", "LICENSE.txt", "license"];
    let text = "";
    for (const candidate of candidates) {
      text ||= await readFile(path.join(folder, candidate), "utf8").catch(() => "");
    }
    texts.push(`${name} ${version} (${license})\n\n${text.trim() || "See the package for its licence text."}\n`);
  }
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}

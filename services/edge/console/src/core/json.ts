// JSON as it was sent: indented without a change to numbers, keys or their order, and compared by path.

/** Indents JSON text token by token, so that large numbers and repeated keys stay as they are. */
export function indentJson(source: string): string {
  let out = "";
  let depth = 0;
  let index = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  while (index < source.length) {
    const character = source[index] as string;
    if (character === '"') {
      const end = endOfString(source, index);
      out += source.slice(index, end);
      index = end;
      continue;
    }
    index += 1;
    if (character === "{" || character === "[") {
      const next = skipSpace(source, index);
      const closing = character === "{" ? "}" : "]";
      if (source[next] === closing) {
        out += character + closing;
        index = next + 1;
        continue;
      }
      depth += 1;
      out += character + line();
    } else if (character === "}" || character === "]") {
      depth = Math.max(0, depth - 1);
      out += line() + character;
    } else if (character === ",") out += character + line();
    else if (character === ":") out += ": ";
    else if (!/\s/.test(character)) out += character;
  }
  return out;
}

function endOfString(source: string, start: number): number {
  for (let index = start + 1; index < source.length; index++) {
    if (source[index] === "\\") index += 1;
    else if (source[index] === '"') return index + 1;
  }
  return source.length;
}

function skipSpace(source: string, start: number): number {
  let index = start;
  while (index < source.length && /\s/.test(source[index] as string)) index += 1;
  return index;
}

export function parseJson(source: string): { value: unknown } | { error: string } {
  try {
    return { value: JSON.parse(source) };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

/** Parses JSON that has to be an object. */
export function parseObject(source: string): { value: Record<string, unknown> } | { error: string } {
  const parsed = parseJson(source);
  if ("error" in parsed) return parsed;
  return isObject(parsed.value) ? { value: parsed.value } : { error: "This is not an object." };
}

/** JSON text of a value, indented; text that is JSON is indented too, and other text stays. */
export function prettyJson(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  return looksLikeJson(value) ? indentJson(value) : value;
}

export function looksLikeJson(source: string): boolean {
  const start = source.trimStart()[0];
  return (start === "{" || start === "[") && "value" in parseJson(source);
}

export interface Change {
  path: string;
  before?: unknown;
  after?: unknown;
}

/** What differs between two values, by path; at most `max` changes, and whether there are more. */
export function compareJson(before: unknown, after: unknown, max = 500): { changes: Change[]; hasMore: boolean } {
  const changes: Change[] = [];
  let hasMore = false;
  const visit = (path: string, left: unknown, right: unknown) => {
    if (left === right) return;
    if (changes.length >= max) {
      hasMore = true;
      return;
    }
    if (isObject(left) && isObject(right)) {
      for (const key of new Set([...Object.keys(left), ...Object.keys(right)]))
        visit(join(path, key), left[key], right[key]);
    } else if (Array.isArray(left) && Array.isArray(right)) {
      for (let index = 0; index < Math.max(left.length, right.length); index++)
        visit(`${path}[${index}]`, left[index], right[index]);
    } else changes.push({ path, before: left, after: right });
  };
  visit("", before, after);
  return { changes, hasMore };
}

function join(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

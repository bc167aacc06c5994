/**
 * The language of searches: `graph/query.py` in TypeScript. `tests/viz/golden/queries.json` holds both to one meaning.
 */

const EXAMPLES: Readonly<Record<string, string>> = {
  block: "block:head",
  kind: "kind:dot",
  role: "role:backward",
  dtype: "dtype:f64",
  line: "line:train.py",
  flops: "flops>1e6",
  bytes: "bytes>1e6",
  memory: "memory>1e6",
};
const KEYS = Object.keys(EXAMPLES);
const NUMBERS = ["flops", "bytes", "memory"];
const ROLES = ["forward", "backward", "update"];
const RELATIONS: Record<string, (a: number, b: number) => boolean> = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  "=": (a, b) => a === b,
  ">=": (a, b) => a >= b,
  ">": (a, b) => a > b,
};
const SPACE = " \t\n\r\f\v\u00a0";
const KEY = /([A-Za-z_]+)(:|>=|<=|>|<|=)/y;
const NUMBER = /^((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:([kKmMgGtTpP])(i?))?[bB]?$/;
const QUOTED = /"((?:[^"\\]|\\.)*)("?)/sy;
const SHORT_DTYPE = /^(bf|f|i|s|u|c)(\d+)(\w*)$/;
const DTYPES: Record<string, string> = { bf: "bfloat", f: "float", i: "int", s: "int", u: "uint", c: "complex" };
const UNATTRIBUTED = "(unattributed)";

/** The values of an instruction or a block that a query is compared with. */
export interface Item {
  /** Paths of its blocks; empty if it is not attributed. */
  blocks: readonly string[];
  /** Its operation, and the kinds of the blocks around it. */
  kinds: readonly string[];
  role: string;
  /** Full names of the dtypes of its results. */
  dtypes: readonly string[];
  lines: readonly string[];
  /** Its numbers by key; unknown ones are missing or null. */
  numbers: Readonly<Record<string, number | null | undefined>>;
}

export interface Term {
  /** A key of `EXAMPLES`, or "" for a word. */
  key: string;
  /** ":" for texts, a comparison for numbers. */
  relation: string;
  value: string | number;
  isNegated: boolean;
}

/** The error of an invalid query. */
export class QueryError extends Error {
  constructor(
    summary: string,
    /** A query that works instead. */
    readonly advice: string,
  ) {
    super(summary);
  }
}

/** Return the terms of a query; throws a `QueryError` if it is invalid. */
export function parseQuery(text: string): Term[] {
  const terms: Term[] = [];
  let at = 0;
  for (;;) {
    while (at < text.length && SPACE.includes(text[at]!)) at++;
    if (at === text.length) return terms;
    const start = at;
    const isNegated = text[at] === "-";
    if (isNegated) at++;
    KEY.lastIndex = at;
    const found = KEY.exec(text);
    const [key, relation] = found ? [found[1]!, found[2]!] : ["", ":"];
    if (found) at = KEY.lastIndex;
    const [value, end] = readValue(text, at, text.slice(start, at));
    if (!value) throw withoutValue(key, relation, isNegated);
    terms.push(termOf(key, relation, value, isNegated));
    at = end;
  }
}

/** Return whether an item fulfils all terms. */
export function matches(terms: readonly Term[], item: Item): boolean {
  return terms.every((term) => holds(term, item) !== term.isNegated);
}

function readValue(text: string, at: number, before: string): [value: string, end: number] {
  if (text[at] !== '"') {
    let end = at;
    while (end < text.length && !SPACE.includes(text[end]!)) end++;
    return [text.slice(at, end), end];
  }
  QUOTED.lastIndex = at;
  const found = QUOTED.exec(text)!;
  const end = QUOTED.lastIndex;
  const value = found[1]!.replace(/\\(["\\])/g, "$1");
  if (!found[2]) throw new QueryError("a quote in the query is not closed.", before + quoted(value || "text"));
  if (end < text.length && !SPACE.includes(text[end]!))
    throw new QueryError("a space is needed after a closing quote.", `${before}${quoted(value)} `);
  return [value, end];
}

function termOf(key: string, relation: string, value: string, isNegated: boolean): Term {
  const name = key.toLowerCase();
  const sign = isNegated ? "-" : "";
  if (!key) return { key: "", relation: ":", value, isNegated };
  if (!KEYS.includes(name)) {
    const near = nearest(name, KEYS);
    const right = near && sign + (NUMBERS.includes(near) ? EXAMPLES[near]! : `${near}:${plain(value)}`);
    throw new QueryError(`unknown key '${key}' in a query.`, right || sign + quoted(`${key}${relation}${value}`));
  }
  if (NUMBERS.includes(name)) {
    const number = numberOf(value);
    if (number === null) throw new QueryError(`${name} needs a number in a query.`, EXAMPLES[name]!);
    return { key: name, relation: relation === ":" ? "=" : relation, value: number, isNegated };
  }
  if (relation !== ":" && relation !== "=")
    throw new QueryError(`${name} is a text, and '${relation}' compares numbers.`, `${sign}${name}:${plain(value)}`);
  if (name === "role" && !ROLES.includes(value.toLowerCase()))
    throw new QueryError(
      `unknown role '${value}' in a query.`,
      `${sign}role:${nearest(value.toLowerCase(), ROLES) || "backward"}`,
    );
  return { key: name, relation: ":", value, isNegated };
}

function withoutValue(key: string, relation: string, isNegated: boolean) {
  if (key)
    return new QueryError(
      `'${key}${relation}' needs a value.`,
      EXAMPLES[nearest(key.toLowerCase(), KEYS)] ?? "kind:dot",
    );
  return isNegated
    ? new QueryError("'-' needs a term after it.", "-kind:dot")
    : new QueryError("the text between quotes is empty.", '"two words"');
}

/** Return the name with the longest common start, the first of several; "" if none has one. */
function nearest(name: string, known: readonly string[]) {
  const common = (one: string) => {
    let at = 0;
    while (at < name.length && at < one.length && name[at] === one[at]) at++;
    return at;
  };
  let best = "";
  for (const one of known) if (common(one) > (best ? common(best) : 0)) best = one;
  return best;
}

function numberOf(text: string) {
  const found = NUMBER.exec(text);
  if (!found) return null;
  const power = found[2] ? "kmgtp".indexOf(found[2].toLowerCase()) + 1 : 0;
  const value = Number(found[1]) * (found[3] ? 1024 : 1000) ** power;
  return Number.isFinite(value) ? value : null;
}

function plain(value: string) {
  return value.startsWith('"') || [...value].some((letter) => SPACE.includes(letter)) ? quoted(value) : value;
}

function quoted(value: string) {
  return `"${value.replace(/["\\]/g, "\\$&")}"`;
}

function holds({ key, relation, value }: Term, item: Item) {
  if (typeof value === "number") {
    const number = item.numbers[key];
    return number != null && RELATIONS[relation]!(number, value);
  }
  const wanted = value.toLowerCase();
  const has = (texts: readonly string[]) => texts.some((text) => text.toLowerCase().includes(wanted));
  switch (key) {
    case "block":
      return (item.blocks.length ? item.blocks : [UNATTRIBUTED]).some((path) => isPart(wanted, path.toLowerCase()));
    case "role":
      return wanted === item.role;
    case "dtype":
      return item.dtypes.includes(fullDtype(wanted));
    case "line":
      return has(item.lines);
    case "kind":
      return has(item.kinds);
    default:
      return has(item.blocks) || has(item.kinds);
  }
}

function fullDtype(name: string) {
  const short = SHORT_DTYPE.exec(name);
  if (short) return `${DTYPES[short[1]!]}${short[2]}${short[3]}`;
  return name === "pred" ? "bool" : name;
}

/** Return whether components of a path that follow each other match a pattern: a block, or one around it. */
function isPart(wanted: string, path: string) {
  const parts = wanted.split("/").map((part) => part.split("*"));
  const names = path.split("/");
  for (let at = 0; at + parts.length <= names.length; at++)
    if (parts.every((part, i) => fits(part, names[at + i]!))) return true;
  return false;
}

/** Return whether a text consists of these literal parts, with any text between two of them: `_fits` of the kernel. */
function fits(parts: readonly string[], text: string) {
  const [first, last] = [parts[0]!, parts.at(-1)!];
  if (parts.length === 1) return text === first;
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const found = text.indexOf(part, at);
    if (found < 0 || found + part.length > text.length - last.length) return false;
    at = found + part.length;
  }
  return true;
}

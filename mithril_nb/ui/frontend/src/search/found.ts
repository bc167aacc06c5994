/** The matches of a query in a program: instructions of its first stage, and blocks. Pure: no DOM, no kernel. */

import type { Scene, SceneNode } from "../graph/scene";
import { type Instruction, type Links, type StageText, lineage, linksOf } from "../store/links";
import { type Item, QueryError, type Term, matches, parseQuery } from "./query";

/** Keys of costs, which some stages do not have. */
const NUMBERS = ["flops", "bytes"] as const;

/** One match: an instruction of the searched stage, or a block. */
export type Hit =
  { kind: "instruction"; instruction: Instruction; blocks: readonly string[] } | { kind: "block"; path: string };

/** Return the values of an instruction that a query is compared with. */
function itemOf(
  { opcode, shares, role, source, library, dtypes = [], numbers = {} }: Instruction,
  kinds: Readonly<Record<string, string>>,
): Item {
  const blocks = shares.flatMap(([path]) => (path ? [path] : []));
  const around = blocks.flatMap((path) =>
    lineage(path).flatMap((one) => (Object.hasOwn(kinds, one) ? [kinds[one]!] : [])),
  );
  return { blocks, kinds: [opcode, ...around], role: role ?? "", dtypes, lines: [...source, ...library], numbers };
}

export class Found {
  readonly hits: readonly Hit[];
  /** The linked lines of all stages. */
  readonly lines: Links["lines"];
  /** Equations of the matching instructions. */
  readonly ids: ReadonlySet<string>;
  /** Number of matching instructions in each block, including inner blocks. */
  private readonly counts = new Map<string, number>();
  /** The matching blocks, and the blocks around them. */
  private readonly paths = new Set<string>();

  /** `kinds` are the kinds of the blocks by path; blocks match only if the query has nothing but words and names. */
  constructor(
    readonly terms: readonly Term[],
    readonly text: StageText | null,
    stages: ReadonlyMap<string, StageText>,
    kinds: Readonly<Record<string, string>>,
  ) {
    const hits: Hit[] = [];
    if (isOfNames(terms)) {
      for (const path of Object.keys(kinds)) {
        const around = lineage(path).flatMap((one) => (Object.hasOwn(kinds, one) ? [kinds[one]!] : []));
        if (!matches(terms, { blocks: [path], kinds: around, role: "", dtypes: [], lines: [], numbers: {} })) continue;
        hits.push({ kind: "block", path });
        for (const one of lineage(path)) this.paths.add(one);
      }
    }
    const ids = new Set<string>();
    for (const instruction of text?.instructions ?? []) {
      const item = itemOf(instruction, kinds);
      if (!matches(terms, item)) continue;
      hits.push({ kind: "instruction", instruction, blocks: item.blocks });
      for (const id of instruction.equations) ids.add(id);
      for (const path of new Set(item.blocks.flatMap(lineage))) this.counts.set(path, (this.counts.get(path) ?? 0) + 1);
    }
    [this.hits, this.ids] = [hits, ids];
    const lines = new Map(linksOf(stages, [{ kind: "equations", name: "search", ids: [...ids] }]).lines);
    if (text)
      lines.set(
        text.stage,
        new Set(hits.flatMap((hit) => (hit.kind === "instruction" ? [hit.instruction.index] : []))),
      );
    this.lines = lines;
  }

  /** Return the number of matches in a node. */
  countIn(node: Pick<SceneNode, "path" | "blocks" | "equations">) {
    const { equations, blocks, path } = node;
    if (equations?.length) return equations.reduce((sum, id) => sum + Number(this.ids.has(id)), 0);
    const paths = blocks?.length ? blocks : path ? [path] : [];
    const count = paths.reduce((sum, one) => sum + (this.counts.get(one) ?? 0), 0);
    return count || Number(paths.some((one) => this.paths.has(one)));
  }

  /** Return the number of matches in each node of a scene that has any. */
  countsIn({ nodes }: Scene) {
    return new Map(
      nodes.map((node): [string, number] => [node.key, this.countIn(node)]).filter(([, count]) => count > 0),
    );
  }
}

function isOfNames(terms: readonly Term[]) {
  return terms.every(({ key }) => key === "" || key === "block" || key === "kind");
}

/** Find what a query matches in the stages of a program; throws a `QueryError`. */
export function find(
  query: string,
  stages: ReadonlyMap<string, StageText>,
  blocks: Readonly<Record<string, string>> = {},
): Found {
  const text = [...stages.values()].find(({ kinds }) => kinds !== null) ?? null;
  const terms = parseQuery(query);
  const lacking = NUMBERS.find(
    (key) =>
      terms.some((term) => term.key === key) && text?.instructions.every(({ numbers }) => numbers?.[key] == null),
  );
  if (lacking && text?.instructions.length)
    throw new QueryError(`Stage ${text.stage} has no ${lacking} to search for.`, "memory>1e6");
  return new Found(terms, text, stages, { ...text?.kinds, ...blocks });
}

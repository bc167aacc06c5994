/** What an operation does, in one line of plain words: from viz/op_help.json, as the static pages have it. */

import data from "../../../viz/op_help.json";

type Table = Record<string, string>;

const ARRAYS: Record<string, Table> = { jaxpr: data.jaxpr, stablehlo: data.stablehlo, hlo_before: data.hlo, hlo: data.hlo };
const FAMILIES = data.asm.map(([pattern, text]): [RegExp, string] => [new RegExp(`^(?:${pattern})$`, "u"), text!]);

/** Opcodes are data: a table has no entry for what every object has. */
function entry(table: Table, name: string): string | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

/** The help for an opcode of a stage, or null if there is nothing to say. */
export function opHelp(stage: string, opcode: string): string | null {
  if (stage === "asm") {
    const mnemonic = opcode.toLowerCase();
    return FAMILIES.find(([pattern]) => pattern.test(mnemonic))?.[1] ?? null;
  }
  if (stage === "llvm") return entry(data.llvm, opcode) ?? null;
  const dialect = ARRAYS[stage];
  if (!dialect) return null;
  const name = opcode.slice(opcode.lastIndexOf(".") + 1).replaceAll("-", "_");
  // An op of CHLO that broadcasts its operands first is otherwise the op itself.
  for (const one of [name, name.replace(/^broadcast_/, "")]) {
    for (const known of [one, entry(data.same, one) ?? one]) {
      const text = entry(dialect, known) ?? entry(data.all, known);
      if (text !== undefined) return text;
    }
  }
  return null;
}

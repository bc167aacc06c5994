/** The tooltip of a line. */

import { type Instruction, type StageText, UNATTRIBUTED } from "./links";

const ORIGINS: Record<string, string> = {
  tagged: "",
  inferred: "linked by the lines around it",
  kernel: "all lines of the kernel have the same link",
};

/** Describe an instruction: opcode, blocks with shares, role, lines of Python, costs, equations, kind of link. */
export function describe(text: StageText, instruction: Instruction, costs: readonly string[] = []): string[] {
  const { length } = instruction.shares;
  const shares = instruction.shares.slice(0, 4).map(([block, share]) => (share < 0.9995 ? `${block || UNATTRIBUTED} ${(share * 100).toFixed(0)} %` : block || UNATTRIBUTED));
  const lines = [`${instruction.opcode} · ${length ? shares.join(", ") + (length > 4 ? `, and ${length - 4} more` : "") : "no block"}${instruction.role ? ` · ${instruction.role}` : ""}`];
  const help = text.help.get(instruction.opcode);
  if (help) lines.push(help);
  if (instruction.transforms.length) lines.push(`inside ${instruction.transforms.join(" › ")}`);
  if (instruction.source.length) lines.push(`Python ${instruction.source.slice(0, 3).join(", ")}${instruction.source.length > 3 ? `, and ${instruction.source.length - 3} more` : ""}`);
  if (instruction.library.length) lines.push(`Library ${instruction.library.slice(0, 3).join(", ")}${instruction.library.length > 3 ? `, and ${instruction.library.length - 3} more` : ""}`);
  lines.push(...costs);
  for (const id of instruction.equations.slice(0, 4)) {
    const equation = text.equations[id];
    lines.push(`${equation ? "equation " : ""}${id}${equation ? ` ${equation.primitive}${equation.source && !instruction.source.includes(equation.source) ? ` · ${equation.source}` : ""}` : ""}`);
  }
  if (instruction.equations.length > 4) lines.push(`and ${instruction.equations.length - 4} more equations`);
  lines.push(ORIGINS[instruction.origin ?? ""] ?? "no source attributed");
  return lines.filter(Boolean);
}

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
  const shares = instruction.shares
    .slice(0, 4)
    .map(([block, share]) =>
      share < 0.9995 ? `${block || UNATTRIBUTED} ${(share * 100).toFixed(0)} %` : block || UNATTRIBUTED,
    );
  const blocks = length ? `${shares.join(", ")}${length > 4 ? `, and ${length - 4} more` : ""}` : "no block";
  const lines = [[instruction.opcode, blocks, instruction.role].filter(Boolean).join(" · ")];
  const help = text.help.get(instruction.opcode);
  if (help) lines.push(help);
  lines.push(...text.lineHelp(instruction.index));
  if (instruction.transforms.length) lines.push(`inside ${instruction.transforms.join(" › ")}`);
  for (const [title, places] of [
    ["Python", instruction.source],
    ["Library", instruction.library],
  ] as const) {
    const more = places.length > 3 ? `, and ${places.length - 3} more` : "";
    if (places.length) lines.push(`${title} ${places.slice(0, 3).join(", ")}${more}`);
  }
  lines.push(...costs);
  for (const id of instruction.equations.slice(0, 4)) {
    const equation = text.equations[id];
    const source = equation?.source && !instruction.source.includes(equation.source) ? ` · ${equation.source}` : "";
    lines.push(equation ? `equation ${id} ${equation.primitive}${source}` : id);
  }
  if (instruction.equations.length > 4) lines.push(`and ${instruction.equations.length - 4} more equations`);
  lines.push(ORIGINS[instruction.origin ?? ""] ?? "no source attributed");
  return lines.filter(Boolean);
}

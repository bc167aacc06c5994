/** Names of the stages, and of the work that makes them. */

export const STAGE_TITLES: Record<string, string> = {
  python: "Python",
  graph: "Graph",
  jaxpr: "jaxpr",
  stablehlo: "StableHLO",
  hlo_before: "HLO before",
  hlo: "HLO",
  llvm: "LLVM IR",
  asm: "Machine code",
};

/** Progress label of each stage, shown with the elapsed time. */
export const STAGE_VERBS: Record<string, string> = {
  python: "Reading",
  graph: "Tracing",
  jaxpr: "Tracing",
  stablehlo: "Lowering",
  hlo_before: "Lowering",
  hlo: "Compiling",
  llvm: "Compiling",
  asm: "Disassembling",
};

export function titleOf(stage: string): string {
  return STAGE_TITLES[stage] ?? stage;
}

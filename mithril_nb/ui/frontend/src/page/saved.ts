/** The data of a saved page, and what is read from them. */

import { decodeJson, unpackEquations, unpackStage } from "../kernel/messages";
import type { CostTableData, MomentData, PackedEquations, PackedGraph, PackedStage } from "../kernel/contract";
import { StageText } from "../store/links";
import type { SavedGraph } from "./graph";
import { type PackedText, textOf } from "./packed-text";

/** The stages are encoded as for the widgets. */
export interface Saved {
  stages: (Omit<PackedStage, "equations" | "text"> &
    ({ text: string } | PackedText) & { name: string; title: string; language: string; unavailable: string | null })[];
  /** The equations of all stages. */
  equations: PackedEquations;
  /** Paths of blocks by their keys in the attributes of the page, if path and key differ. */
  paths: Record<string, string>;
  /** CSS class of the stripe of each block. */
  hues: Record<string, string>;
  /** Stages that are open at first. */
  shown: string[];
  /** FLOPs by block and role, for folded rows; missing if unknown. */
  costs?: CostTableData | null;
  /** Moments of a lecture. */
  tour: MomentData[];
  /** Diffs of the passes. */
  passes: string[];
  /** Rows of the table of costs as HTML, if the page itself has too few of them. */
  rows: string[];
  /** The graph and its open nodes; null if the program has none. */
  graph: (PackedGraph & SavedGraph) | null;
}

export interface SavedStage {
  name: string;
  title: string;
  language: string;
  unavailable: string | null;
  text: StageText;
}

export async function decodeSaved(packed: string): Promise<Saved> {
  const letters = atob(packed);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return decodeJson<Saved>(bytes);
}

/** Return the stages. Their texts are unpacked on first use: those of a large program take seconds. */
export function stagesOf(saved: Saved): SavedStage[] {
  const equations = unpackEquations(saved.equations);
  return saved.stages.map(({ name, title, language, unavailable, ...packed }) => {
    let text: StageText | null = null;
    const unpacked = () => {
      const whole = textOf(packed);
      return new StageText(name, 0, whole.replace(/\n$/, ""), {
        ...unpackStage({ ...packed, text: whole }),
        equations,
      });
    };
    return {
      name,
      title,
      language,
      unavailable,
      get text() {
        return (text ??= unpacked());
      },
    };
  });
}

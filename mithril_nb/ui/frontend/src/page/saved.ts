/** The data of a saved page, and what is read from them. */

import { type PackedStage, decodeJson, unpackStage } from "../kernel/messages";
import { StageText } from "../store/links";

/** The stages are encoded as for the widgets. */
export interface Saved {
  stages: (PackedStage & { name: string; title: string; unavailable: string | null })[];
  /** Paths of blocks by the keys in the page's attributes, where they differ. */
  paths: Record<string, string>;
  /** CSS class of the stripe of each block. */
  hues: Record<string, string>;
  /** Stages that are open at first. */
  shown: string[];
  /** Diffs of the passes. */
  passes: string[];
  /** Pictures of the graph by the node that is open in them, and the node around each node. */
  pictures: Record<string, string>;
  parents: Record<string, string>;
}

export interface SavedStage {
  title: string;
  unavailable: string | null;
  text: StageText;
}

export async function decodeSaved(packed: string): Promise<Saved> {
  return decodeJson<Saved>(Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0)));
}

export function stagesOf(saved: Saved): SavedStage[] {
  return saved.stages.map(({ name, title, unavailable, ...packed }) => {
    const raw = unpackStage(packed);
    return { title, unavailable, text: new StageText(name, 0, raw.text.replace(/\n$/, ""), raw) };
  });
}

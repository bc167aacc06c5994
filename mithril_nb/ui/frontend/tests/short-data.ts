import type { Fixture } from "../dev/fake-model";
import fixture from "../fixtures/mlp.json";

/**
 * Return the data of a small program with the first lines of each stage: without layout, the editor draws every line.
 */
export function shortData(lines: number): Fixture {
  const data = structuredClone(fixture) as unknown as Fixture;
  for (const stage of Object.values(data.stages)) {
    stage.text = stage.text.split("\n").slice(0, lines).join("\n");
    stage.instructions = stage.instructions.filter(([line]) => line <= lines);
  }
  return data;
}

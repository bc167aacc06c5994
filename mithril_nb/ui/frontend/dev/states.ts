/** Variants of the fixture for the visual states of the workbench. */

import { NO_GRAPH } from "../src/layout/data";
import type { ProblemData } from "../src/kernel/contract";
import type { Fixture } from "./fake-model";

const MISFIT: ProblemData = {
  code: "ShapeError",
  summary: "cannot connect 'mlp_0.output' to 'linear_1.input'.",
  facts: [
    ["output", "(32, 64) float32"],
    ["input", "needs (..., 128)"],
    ["found", "axis 1: 64 != 128"],
  ],
  advice: "Linear(dimension=128) in 'mlp_0', or let 'linear_1' infer its width by leaving it out.",
  block: "linear_1",
  port: "input",
  edge: ["mlp_0.output", "linear_1.input"],
};

export function stateOf(fixture: Fixture, name: string): Fixture {
  const copy = structuredClone(fixture);
  const { snapshot } = copy;
  const stages = Object.values(snapshot.stages);
  if (name === "empty") {
    snapshot.graph = NO_GRAPH;
    snapshot.blocks = {};
    snapshot.cost = null;
    for (const stage of stages) Object.assign(stage, { state: "empty", lines: 0 });
    snapshot.source = "model = Model()\n";
    snapshot.status = { trace_s: null, lower_s: null, optimize_s: null, compile_s: null, attributed: null };
    snapshot.run = { ...snapshot.run, state: "none", points: 0, steps: 0 };
  }
  if (name === "problem") {
    snapshot.problems = [MISFIT];
    const { boxes, flows } = snapshot.graph;
    const place = boxes.key!.indexOf("linear_1");
    boxes.problem = boxes.key!.map((_, at) => (at === place ? 0 : null));
    flows.problem = flows.target!.map((target) => (target === place ? 0 : null));
    snapshot.notice = {
      ...MISFIT,
      code: "CycleError",
      summary: "connecting 'linear_1.output' to 'linear_0.input' creates a cycle.",
      facts: [["cycle", "linear_0 -> relu_0 -> mlp_0 -> linear_1 -> linear_0"]],
      advice: "connect 'linear_0.input' to a model input.",
    };
    Object.assign(snapshot.stages["hlo"]!, {
      state: "failed",
      message: "XlaRuntimeError: RESOURCE_EXHAUSTED: 18.2 GB required, 16.0 GB available.",
    });
    Object.assign(snapshot.stages["stablehlo"]!, {
      state: "unavailable",
      message: 'The shapes of the model are unknown. Try: shapes={"input": [32, 64]}.',
    });
  }
  if (name === "loading") for (const stage of stages.slice(1)) Object.assign(stage, { state: "loading" });
  if (name === "big") {
    // Each stage eleven times as long, as for a deep network.
    for (const stage of Object.values(copy.stages)) {
      const lines = stage.text.split("\n");
      const copies = Array.from({ length: 10 }, (_, i) =>
        stage.instructions.map(
          ([line, ...rest]) => [line + (i + 1) * lines.length, ...rest] as (typeof stage.instructions)[0],
        ),
      );
      stage.text = Array.from({ length: 11 }, () => stage.text).join("\n");
      stage.instructions = [...stage.instructions, ...copies.flat()];
    }
  }
  if (name === "script") {
    snapshot.name = "<script>alert(1)</script>";
    snapshot.graph.boxes.name![1] = "<img src=x onerror=alert(1)>";
  }
  return copy;
}

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import fixture from "../fixtures/mlp.json";
import { type Fixture, FakeSession, type Sent, gzip } from "../dev/fake-model";
import { mountExplorer } from "../src/explorer";
import { pictureOf } from "../src/stage-graph";
import type { SeenNode } from "../src/types";

const LINES = 70;
const data = structuredClone(fixture) as unknown as Fixture;
for (const stage of Object.values(data.stages)) {
  stage.text = stage.text.split("\n").slice(0, LINES).join("\n");
  stage.instructions = stage.instructions.filter(([line]) => line <= LINES);
}
const { version, name, backend, blocks, cost, problems, notice, stages, selection, status } = data.snapshot;
data.snapshot = { version, name, backend, blocks, cost, problems, notice, stages, selection, status, graph_stage: "jaxpr", graph_stages: ["jaxpr", "hlo"], passes: { state: "empty", message: "", version: 0 } } as unknown as Fixture["snapshot"];

const node = (key: string, opens = false, opened = false): SeenNode => ({ key, mark: encodeURI(key), name: key, blocks: [key], equations: [], opens, opened });
const NODES = [node("linear_0"), node("mlp_0", true), node("linear_1")];
const svgOf = (nodes: SeenNode[]): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 100"><style>*{fill:red}</style><script>alert(1)</script>${nodes.map((one) => `<g class="node" data-node="${one.mark}" tabindex="0" aria-label="block ${one.key}" onclick="alert(1)"><title>x</title><rect class="box"/></g>`).join("")}</svg>`;
class FakeExplorer extends FakeSession {
  nodes = NODES;
  async picture(): Promise<void> {
    this.message({ type: "graph", stage: "jaxpr" }, [await gzip(JSON.stringify({ svg: svgOf(this.nodes), nodes: this.nodes }))]);
  }
  protected override answer(command: Sent): void {
    const { name } = command;
    if (name === "hello" || name === "open_node") void this.picture();
    super.answer(command);
  }
}

describe("the explorer", () => {
  let session: FakeExplorer;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = <T extends Element = HTMLElement>(selector: string): T => {
    const found = el.querySelector<T>(selector);
    if (!found) throw new Error(`nothing is at ${selector}`);
    return found;
  };
  const key = (target: Element, name: string, more: KeyboardEventInit = {}): void => void target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
  const at = (mark: string): SVGElement => find(`.mnb-stage-graph [data-node="${mark}"]`);
  const sent = (name: string): unknown[] => session.sent.filter((command) => command.name === name).map((command) => command.args);
  beforeEach(async () => {
    session = new FakeExplorer(data);
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountExplorer({ model: session, el });
    await vi.waitFor(() => expect(el.querySelectorAll('[data-mnb-pane][data-mnb-version="1"]')).toHaveLength(2), { timeout: 5000 });
    await vi.waitFor(() => expect(find(".mnb-stage-graph").dataset["mnbNodes"]).toBe("3"));
  });
  afterEach(() => {
    cleanup();
    el.remove();
  });

  test("shows the graph and two linked stages first, with the blocks' stripes, and asks for nothing else", () => {
    expect(sent("request_stage")).toEqual([{ stage: "jaxpr" }, { stage: "stablehlo" }]);
    expect(el.querySelectorAll('[data-mnb-pane="jaxpr"] .mnb-stripe').length).toBeGreaterThan(5);
    at("linear_0").dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 1 }));
    for (const stage of ["jaxpr", "stablehlo"]) expect(find(`[data-mnb-pane="${stage}"] .mnb-pane-linked`).textContent).toMatch(/^\d+ linked$/);
    expect(at("linear_0").getAttribute("data-mnb-linked")).toBe("pinned");
    expect(at("linear_1").getAttribute("data-mnb-linked")).toBeNull();
  });

  test("walks and opens the graph by keys, and keeps the focus on what was opened", async () => {
    expect([...el.querySelectorAll(".mnb-stage-graph [tabindex='0']")]).toEqual([at("linear_0")]);
    at("linear_0").focus();
    key(at("linear_0"), "ArrowDown");
    expect(document.activeElement).toBe(at("mlp_0"));
    session.nodes = [NODES[0]!, node("mlp_0", true, true), node("mlp_0/inner"), NODES[2]!];
    key(at("mlp_0"), "ArrowRight");
    expect(sent("open_node")).toEqual([{ key: "mlp_0" }]);
    await vi.waitFor(() => expect(find(".mnb-stage-graph").dataset["mnbNodes"]).toBe("4"));
    expect(document.activeElement).toBe(at("mlp_0"));
    key(at("mlp_0"), "Enter");
    expect(at("mlp_0").getAttribute("data-mnb-linked")).toBe("pinned");
    key(at("mlp_0"), "ArrowLeft");
    expect(sent("close_node")).toEqual([{ key: "mlp_0" }]);
    key(at("mlp_0"), "Escape");
    expect(at("mlp_0").getAttribute("data-mnb-linked")).toBeNull();
  });

  test("steps through the passes by keys, and says where the pinned line came from", async () => {
    find('[data-mnb-tab="passes"]').click();
    find('[data-mnb-action="passes.ask"]').click();
    await vi.waitFor(() => expect(find(".mnb-passes").dataset["mnbShown"]).toBe("0"));
    expect(find('[data-mnb-tab="passes"] .mnb-tab-figure').textContent).toBe("2");
    expect(find(".mnb-pass-diff .mnb-pane-figures").textContent).toMatch(/ · 3 lines$/);
    key(find(".mnb-pass-list"), "ArrowDown");
    await vi.waitFor(() => expect(find(".mnb-passes").dataset["mnbShown"]).toBe("1"));
    expect(find(".mnb-pass-diff .mnb-pane-figures").textContent).toMatch(/ · the first 3 lines; inspection\.passes\[1\]\.diff has all$/);
    expect([...el.querySelectorAll(".mnb-diff-added, .mnb-diff-removed")].map((line) => line.textContent)).toEqual(["-  %gone", "+  %come 1 of 1"]);
    find('[data-mnb-action="pane.hlo"]').click();
    await vi.waitFor(() => expect(find('[data-mnb-pane="hlo"]').dataset["mnbVersion"]).toBe("1"), { timeout: 5000 });
    key(find('[data-mnb-pane="hlo"] .cm-content'), "End", { ctrlKey: true });
    key(find('[data-mnb-pane="hlo"] .cm-content'), "Enter");
    await vi.waitFor(() => expect(find(".mnb-pass-fate").textContent).toMatch(/of HLO appeared in 2\. fusion$/));
  });

  test("asks for HLO in short, and takes no answer to an older wish", async () => {
    find('[data-mnb-action="pane.hlo"]').click();
    await vi.waitFor(() => expect(find('[data-mnb-pane="hlo"]').dataset["mnbVersion"]).toBe("1"), { timeout: 5000 });
    find('[data-mnb-action="short.hlo"]').click();
    expect(sent("request_stage").at(-1)).toEqual({ stage: "hlo", short: true });
    expect(find('[data-mnb-action="short.hlo"]').getAttribute("aria-pressed")).toBe("true");
  });

  test("leaves nothing behind", () => {
    cleanup();
    expect([el.childElementCount, session.listening]).toEqual([0, 0]);
  });
});

test("of a picture only what is drawn is taken", () => {
  const picture = pictureOf(svgOf(NODES))!;
  expect(picture.querySelectorAll("script, style")).toHaveLength(0);
  expect(picture.querySelector("[onclick]")).toBeNull();
  expect(picture.querySelectorAll("g.node rect")).toHaveLength(3);
  expect(pictureOf("<svg><g>")).toBeNull();
});

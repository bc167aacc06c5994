import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession, type Sent, gzip } from "../dev/fake-model";
import { mountExplorer } from "../src/explorer";
import type { TransformStepData } from "../src/kernel/contract";
import { finderIn } from "./find";
import { shortData } from "./short-data";

const data = shortData(20);
data.snapshot = {
  ...data.snapshot,
  graph_stage: "jaxpr",
  graph_stages: ["jaxpr", "hlo"],
  passes: { state: "empty", message: "", version: 0 },
  transforms: { state: "empty", message: "", compared: [] },
};

const GRAPH = { title: "jaxpr", is_model: false, roles: [], shapes: [], idle: [], boxes: {}, flows: {}, opened: [] };
const STEPS: TransformStepData[] = [
  {
    name: "trace",
    explanation: "runs it once.",
    problem: null,
    before: null,
    after: { text: "{ lambda }\n", marks: [] },
  },
];
const UNREADABLE = /^The message from the kernel could not be shown: .+ Run the cell again to load it\.$/;

/** Sends truncated messages while `isCut`, and rejects requests for a short text. */
class Broken extends FakeSession {
  isCut = true;
  graph: unknown = GRAPH;
  override message(content: any, buffers: DataView[] = []): void {
    super.message(
      content,
      this.isCut ? buffers.map(({ buffer }) => new DataView(buffer, 0, buffer.byteLength >> 1)) : buffers,
    );
  }
  async picture(stage = "jaxpr"): Promise<void> {
    this.message({ type: "graph", stage }, [await gzip(JSON.stringify(this.graph))]);
  }
  async steps(): Promise<void> {
    this.message({ type: "transforms", left_out: [] }, [await gzip(JSON.stringify(STEPS))]);
  }
  protected override answer(command: Sent): void {
    if (command.name === "request_stage" && command.args["short"]) {
      const error = { code: "LookupError", summary: "<b>no</b> short text.", facts: [], advice: "the whole one." };
      this.message({ type: "reply", id: command.id, ok: false, error });
      return;
    }
    if (command.name === "hello") {
      void this.picture();
      void this.steps();
    }
    super.answer(command);
  }
}

describe("messages that cannot be decoded show an error", () => {
  let session: Broken;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const soon = (look: () => void): Promise<void> => vi.waitFor(look, { timeout: 5000 });
  beforeEach(() => {
    session = new Broken(data);
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountExplorer({ model: session, el });
  });
  afterEach(() => {
    cleanup();
    el.remove();
  });

  test("a stage", async () => {
    const pane = (): HTMLElement => find('[data-mnb-pane="jaxpr"]');
    await soon(() => expect(pane().dataset["mnbState"]).toBe("failed"));
    expect(pane().querySelector(".mnb-pane-card b")!.textContent).toBe("jaxpr could not be shown");
    expect(pane().querySelector(".mnb-pane-card p")!.textContent).toMatch(UNREADABLE);
    // Only the next text removes the error.
    session.change({});
    expect(pane().dataset["mnbState"]).toBe("failed");
    session.isCut = false;
    session.change({
      stages: { ...session.snapshot.stages, jaxpr: { ...session.snapshot.stages["jaxpr"]!, version: 2 } },
    });
    await soon(() => expect([pane().dataset["mnbState"], pane().dataset["mnbVersion"]]).toEqual(["ready", "2"]));
    expect(pane().querySelector<HTMLElement>(".mnb-pane-card")!.hidden).toBe(true);
  });

  test("a short text that the kernel rejects", async () => {
    session.isCut = false;
    const pane = (): HTMLElement => find('[data-mnb-pane="hlo"]');
    find('[data-mnb-action="pane.hlo"]').click();
    await soon(() => expect(pane().dataset["mnbVersion"]).toBe("1"));
    find('[data-mnb-action="short.hlo"]').click();
    await soon(() => expect(pane().dataset["mnbState"]).toBe("failed"));
    expect(pane().querySelector(".mnb-pane-card")!.textContent).toBe(
      "HLO could not be shown<b>no</b> short text. Try: the whole one.",
    );
    expect(pane().querySelector<HTMLElement>(".mnb-badge")!.hidden).toBe(true); // the text is not an older one
    find('[data-mnb-action="short.hlo"]').click();
    await soon(() => expect(pane().dataset["mnbState"]).toBe("ready"));
    expect(pane().querySelector<HTMLElement>(".mnb-pane-card")!.hidden).toBe(true);
  });

  test("the list of passes and a diff", async () => {
    find('[data-mnb-tab="passes"]').click();
    find('[data-mnb-action="passes.compile"]').click();
    const part = (): HTMLElement => find('[data-mnb-part="passes"]');
    await soon(() => expect(part().dataset["mnbState"]).toBe("failed"));
    expect(part().querySelector(".mnb-hint")!.textContent).toMatch(
      /^The passes could not be shown\. The message from the kernel could not be shown: .+ Run the cell again to load/,
    );
    expect(find('[data-mnb-action="passes.compile"]').hidden).toBe(true); // the kernel has the passes
    session.isCut = false;
    await session.sendPasses();
    await soon(() => expect(part().dataset["mnbShown"]).toBe("0"));
    expect(part().dataset["mnbState"]).toBe("ready");
    session.isCut = true;
    find('[data-mnb-part="passes"] [data-mnb-pass="1"]').click();
    const diff = (): HTMLElement => find('[data-mnb-part="passes"] .mnb-pass-diff');
    await soon(() => expect(diff().dataset["mnbState"]).toBe("failed"));
    expect(diff().querySelector(".mnb-pane-head b")!.textContent).toBe("fusion");
    expect(diff().querySelector(".mnb-hint")!.textContent).toMatch(UNREADABLE);
    expect(diff().textContent).not.toContain("%come");
    session.isCut = false;
    find('[data-mnb-part="passes"] [data-mnb-pass="0"]').click();
    await soon(() => expect(diff().textContent).toContain("%come 0"));
    expect([diff().dataset["mnbState"], diff().querySelector<HTMLElement>(".mnb-hint")!.hidden]).toEqual([
      "ready",
      true,
    ]);
  });

  test("a first graph and a replacement", async () => {
    const graph = (): HTMLElement => find(".mnb-stage-graph");
    await soon(() => expect(graph().dataset["mnbState"]).toBe("failed"));
    expect(graph().querySelector(".mnb-hint")!.textContent).toMatch(
      /^No graph: The message from the kernel could not be shown: .+\.$/,
    );
    session.change({});
    expect(graph().dataset["mnbState"]).toBe("failed");
    session.isCut = false;
    await session.picture();
    await soon(() => expect([graph().dataset["mnbState"], graph().dataset["mnbNodes"]]).toEqual(["ready", "0"]));
    session.graph = null;
    session.change({ graph_stage: "hlo" });
    await session.picture("hlo");
    await soon(() => expect(graph().dataset["mnbState"]).toBe("failed"));
    expect(graph().querySelector(".mnb-pane-figures")!.textContent).toMatch(
      /^no graph of HLO: The message from the kernel could not be shown: .+ Run the cell again to load it\.$/,
    );
    session.change({ graph_stage: "jaxpr" });
    expect([graph().dataset["mnbState"], graph().querySelector(".mnb-pane-figures")!.textContent]).toEqual([
      "ready",
      "0 nodes",
    ]);
  });

  test("transforms", async () => {
    const part = (): HTMLElement => find('[data-mnb-part="transforms"]');
    await soon(() => expect(part().dataset["mnbState"]).toBe("failed"));
    expect(part().querySelector(".mnb-hint")!.textContent).toMatch(
      /^The steps could not be shown\. The message from the kernel could not be shown: .+\.$/,
    );
    session.change({});
    expect(part().dataset["mnbState"]).toBe("failed");
    session.isCut = false;
    await session.steps();
    await soon(() => expect([part().dataset["mnbState"], part().dataset["mnbStep"]]).toEqual(["ready", "0"]));
    expect(part().querySelector<HTMLElement>(":scope > .mnb-hint")!.hidden).toBe(true);
  });
});

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession, type Sent, gzip } from "../dev/fake-model";
import { drawingOf } from "../src/costs/picture";
import type { CostDetail, CostTableData, Source } from "../src/kernel/contract";
import type { Snapshot } from "../src/kernel/model";
import { mountWorkbench } from "../src/workbench";
import { finderIn } from "./find";
import { shortData } from "./short-data";

/** Decompression is slow on a busy machine. */
const soon = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 10_000 });
const data = shortData(40);
const cost = data.snapshot.cost!;

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" class="mnb-cost" role="img" viewBox="0 0 300 100">
<title>FLOPs by block</title>
<style>.f{fill:red}@media (prefers-color-scheme:dark){.f{fill:blue}}</style>
<script>alert(1)</script>
<g data-block="linear_0"><title>linear_0\n7 FLOP</title><rect class="f" onclick="alert(1)"/></g>
<g data-block="mlp_0/linear_0"><title>x</title>
<rect style="fill:url(http://far.away)"/></g>
<g data-block=""><title>what no block caused</title><rect fill="url(#hatch)"/></g>
<image href="http://far.away"/></svg>`;
const ROWS: CostDetail[] = [
  {
    id: "3",
    opcode: "dot_general",
    role: "forward",
    repeats: 12,
    formula: "2·B·M·N·K",
    share: 1,
    figures: { flops: 7000, bytes_accessed: 12, transcendentals: 0 },
  },
];

const CUT = await gzip('{"rows": [');

class FakeCosts extends FakeSession {
  lowered = "";
  memory = "";
  /** True if messages are truncated. */
  isCut = false;
  protected override answer(command: Sent): void {
    super.answer(command);
    void this.reply(command.name, command.args);
  }
  turn(source: Source, state: string, message = ""): void {
    const costs = this.snapshot.costs!;
    this.change({
      costs: { ...costs, sources: { ...costs.sources, [source]: { state, message, version: this.snapshot.version } } },
    } as Partial<Snapshot>);
  }
  override message(message: unknown, buffers: DataView[] = []): void {
    super.message(message, this.isCut && /^(cost|what_if)/.test((message as { type: string }).type) ? [CUT] : buffers);
  }
  async reply(name: string, args: Record<string, any>): Promise<void> {
    const { version } = this.snapshot;
    const source = args["source"] as Source;
    if (name === "request_cost" && this.lowered) this.turn(source, "unavailable", this.lowered);
    else if (name === "request_cost" || name === "measure") {
      const by = name === "measure" ? "measured" : source;
      const table: CostTableData = {
        ...cost,
        source: by,
        rows: cost.rows.map((row) => ({
          ...row,
          flops: row.flops! * 2,
          time_s: by === "measured" ? 1e-6 * row.flops! : null,
        })),
        total: { ...cost.total, flops: cost.total.flops! * 2, time_s: by === "measured" ? 1 : null },
        notes: [`${by}: a note`],
      };
      this.message({ type: "cost", source: by, version }, [await gzip(JSON.stringify(table))]);
      this.turn(by, "ready");
    } else if (name === "request_cost_rows")
      this.message({ type: "cost_rows", source, block: args["block"], figure: args["figure"] }, [
        await gzip(JSON.stringify({ rows: ROWS, left: 3 })),
      ]);
    else if (name === "request_cost_picture")
      this.message({ type: "cost_picture", key: args["key"] }, [
        await gzip(
          JSON.stringify({
            svg: args["view"] === "memory" ? this.memory : SVG,
            text: "block  FLOPs",
            reason: args["view"] === "memory" && !this.memory ? "it does not compile" : "",
          }),
        ),
      ]);
    else if (name === "request_settings") {
      const costs = this.snapshot.costs!;
      const doc = "Number of samples.";
      const batch = { name: "batch", type: "int", value: 32, min: 1, max: 4096, choices: null, doc, optional: false };
      this.change({
        costs: { ...costs, what_if: { state: "empty", message: "", problem: null, version, settings: [batch] } },
      });
    } else if (name === "what_if") {
      const row = (figure: string, before: number | null, after: number | null): unknown => ({
        figure,
        before,
        after,
        reason: "nobody says",
      });
      const rows = [row("flops", 10, 20), row("peak_bytes", null, null)];
      const problem = args["changes"].some((one: unknown[]) => one[2] === 4095)
        ? { code: "ShapeError", summary: "it does not fit.", facts: [], advice: "another" }
        : null;
      this.message({ type: "what_if", key: args["key"] }, [
        await gzip(
          JSON.stringify({
            changes: args["changes"],
            how: "traced again in 3 ms.",
            rows,
            compiled: args["compile"] ? rows : null,
            picture: { svg: SVG, text: "", reason: "" },
            problem,
          }),
        ),
      ]);
    }
  }
}

describe("the Cost tab", () => {
  let session: FakeCosts;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const at = (action: string): HTMLElement => find(`[data-mnb-action="cost.${action}"]`);
  const key = (target: Element, name: string): void =>
    void target.dispatchEvent(
      new KeyboardEvent("keydown", { key: name, bubbles: true, composed: true, cancelable: true }),
    );
  const sent = (name: string): any[] =>
    session.sent.filter((command) => command.name === name).map((command) => command.args);
  const rows = (): string[] =>
    [...el.querySelectorAll<HTMLElement>(".mnb-cost-table > table > tbody > tr[data-mnb-cost]")].map(
      (row) => row.dataset["mnbCost"]!,
    );
  const drawing = (): ShadowRoot => find(".mnb-cost-picture .mnb-drawing").shadowRoot!;
  beforeEach(() => {
    session = new FakeCosts(structuredClone(data));
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountWorkbench({ model: session, el });
    find('[data-mnb-tab="cost"]').click();
  });
  afterEach(() => {
    cleanup();
    expect([el.childElementCount, session.listening]).toEqual([0, 0]);
    el.remove();
  });

  test("is a tree of rows with one stop in the tab order", () => {
    expect(rows()).toEqual(cost.rows.filter((row) => row.block).map((row) => row.block));
    expect(
      [...el.querySelectorAll<HTMLElement>('tr[data-mnb-cost][tabindex="0"]')].map((row) => row.dataset["mnbCost"]),
    ).toEqual([rows()[0]]);
    const first = find<HTMLElement>(`tr[data-mnb-cost="${rows()[0]}"]`);
    first.focus();
    key(first, "ArrowDown");
    expect((document.activeElement as HTMLElement).dataset["mnbCost"]).toBe(rows()[1]);
    key(document.activeElement!, "Enter");
    expect(find(`tr[data-mnb-cost="${rows()[1]}"]`).dataset["mnbLinked"]).toBe("pinned");
    key(document.activeElement!, "End");
    expect((document.activeElement as HTMLElement).dataset["mnbCost"]).toBe("(unattributed)");
    expect(find(".mnb-total").textContent).toContain("11.7 MFLOP");
  });

  test("builds a long table only when it is visible", () => {
    const before = rows();
    find('[data-mnb-tab="train"]').click();
    session.change({
      cost: {
        ...cost,
        rows: Array.from({ length: 300 }, (_, i) => ({ ...cost.rows[0]!, block: `block_${i}`, total: undefined })),
      },
    });
    expect(rows()).toEqual(before);
    find('[data-mnb-tab="cost"]').click();
    expect(rows()).toHaveLength(300);
  });

  test("sorts by a column and returns to the model's order", () => {
    const before = rows();
    at("sort.flops").click();
    expect(find('th[aria-sort="descending"]').textContent).toBe("own FLOPs");
    expect(rows()[0]).toBe("mlp_0/linear_0");
    at("sort.flops").click();
    expect(find("th[aria-sort]").getAttribute("aria-sort")).toBe("ascending");
    at("sort.flops").click();
    expect(rows()).toEqual(before);
    at("sort.block").click();
    expect(rows()).toEqual([...before].sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
  });

  test("compares sources and requests each once", async () => {
    expect(sent("request_cost")).toEqual([]);
    at("source.lowered").click();
    await soon(() => expect(find("thead").textContent).toContain("Analytic, own FLOPsLowered, own FLOPs"));
    expect(sent("request_cost")).toEqual([{ source: "lowered" }]);
    expect(find(".mnb-total").textContent).toContain("11.7 MFLOP23.5 MFLOP100 %");
    expect(find(".mnb-cost-notes").textContent).toContain("Lowered: lowered: a note");
    at("source.analytic").click();
    at("source.lowered").click();
    expect(at("source.lowered").getAttribute("aria-pressed")).toBe("true");
    const figure = at("figure") as HTMLSelectElement;
    figure.value = "bytes_accessed";
    figure.dispatchEvent(new Event("change"));
    expect(find('[data-mnb-action="cost.sort.share"]').textContent).toBe("own share of Bytes");
    // After a model change, the costs are stale until new ones arrive.
    session.alive = false;
    session.change({ version: 2, cost: { ...session.snapshot.cost!, stale: false } });
    expect(find(".mnb-costs .mnb-badge").hidden).toBe(false);
    expect(sent("request_cost")).toHaveLength(2);
  });

  test("shows why a source is not available", async () => {
    session.lowered = "no <b>lowering</b> here";
    at("source.lowered").click();
    await soon(() =>
      expect(find(".mnb-cost-problems").textContent).toBe("Lowered costs are not available: no <b>lowering</b> here"),
    );
    expect(at("source.lowered").title).toBe("Not available: no <b>lowering</b> here");
    expect(rows().length).toBeGreaterThan(3);
  });

  test("shows the costs of a program without a jaxpr", () => {
    const why = "this program was given as HLO text: it has no jaxpr";
    const { costs } = session.snapshot;
    session.change({
      cost: null,
      costs: {
        ...costs!,
        sources: { ...costs!.sources, analytic: { state: "unavailable", message: why, version: 0 } },
      },
    } as Partial<Snapshot>);
    expect(find(".mnb-costs > .mnb-hint").textContent).toBe("Costs appear once the model can run.");
    session.change({ cost: { ...data.snapshot.cost!, source: "compiled" } } as Partial<Snapshot>);
    expect(at("source.compiled").getAttribute("aria-pressed")).toBe("true");
    expect(at("source.analytic").title).toBe(`Not available: ${why}`);
    expect(rows().length).toBeGreaterThan(3);
    expect(find(".mnb-cost-problems").textContent).toBe("");
    at("source.analytic").click();
    expect(find(".mnb-cost-problems").textContent).toBe(`Analytic costs are not available: ${why}`);
    expect(sent("request_cost")).toEqual([{ source: "analytic" }]);
  });

  test("measures on request and shows times", async () => {
    at("source.measured").click();
    expect(find(".mnb-cost-problems").textContent).toContain("Not measured yet");
    expect(sent("request_cost")).toEqual([]);
    at("measure").click();
    await soon(() => expect(at("measure").textContent).toBe("Measure again"));
    expect(find("thead").textContent).toContain("Share of Time");
    session.turn("measured", "loading");
    expect([at("measure").textContent, at("measure").getAttribute("aria-disabled")]).toEqual(["Measuring…", "true"]);
  });

  test("expands a row to its equations by keys", async () => {
    const row = find<HTMLElement>('tr[data-mnb-cost="linear_0"]');
    row.focus();
    key(row, "ArrowRight");
    expect(row.getAttribute("aria-expanded")).toBe("true");
    await soon(() =>
      expect(find(".mnb-cost-detail").textContent).toContain("3dot_generalforward×127.00 kFLOP12 B02·B·M·N·K"),
    );
    expect(find(".mnb-cost-detail").textContent).toContain("and 3 more with fewer FLOPs");
    expect(sent("request_cost_rows")).toEqual([{ source: "analytic", block: "linear_0", figure: "flops" }]);
    key(row, "ArrowLeft");
    expect(el.querySelector(".mnb-cost-detail")).toBeNull();
    expect(document.activeElement).toBe(row);
  });

  test("requests row details again after the model changes", async () => {
    const row = find<HTMLElement>('tr[data-mnb-cost="linear_0"]');
    key(row, "ArrowRight");
    session.change({ selection: [] } as Partial<Snapshot>);
    expect(sent("request_cost_rows")).toHaveLength(1);
    await soon(() => expect(find(".mnb-cost-detail").textContent).toContain("dot_general"));
    const version = session.snapshot.version + 1;
    session.change({ version, cost: { ...session.snapshot.cost!, stale: true } } as Partial<Snapshot>);
    const count = sent("request_cost_rows").length;
    session.change({ cost: { ...session.snapshot.cost!, stale: false } } as Partial<Snapshot>);
    expect(sent("request_cost_rows").length).toBe(count + 1);
    expect(find(".mnb-cost-detail").textContent).toBe("Loading…");
    await soon(() => expect(find(".mnb-cost-detail").textContent).toContain("dot_general"));
  });

  test("draws linked pictures with a text version", async () => {
    const radio = at("view.table");
    radio.focus();
    key(radio, "ArrowRight");
    expect(document.activeElement).toBe(at("view.treemap"));
    expect([at("view.treemap").getAttribute("aria-checked"), at("view.table").getAttribute("tabindex")]).toEqual([
      "true",
      "-1",
    ]);
    await soon(() => expect(drawing().querySelectorAll("[data-block]")).toHaveLength(3));
    expect(find(".mnb-cost-picture .mnb-text-version").textContent).toBe("block  FLOPs");
    const mark = find<SVGElement>('[data-block="linear_0"]', drawing());
    expect([mark.getAttribute("aria-label"), mark.getAttribute("role"), mark.getAttribute("tabindex")]).toEqual([
      "linear_0, 7 FLOP",
      "button",
      "0",
    ]);
    mark.dispatchEvent(new MouseEvent("click", { bubbles: true, composed: true }));
    expect(mark.getAttribute("aria-pressed")).toBe("true");
    await soon(() => expect(sent("select").at(-1)).toEqual({ paths: ["linear_0"] }));
    key(mark, "ArrowRight");
    key(drawing().activeElement!, "Enter");
    expect(find('[data-block="mlp_0/linear_0"]', drawing()).getAttribute("data-mnb-linked")).toBe("pinned");
    expect(mark.getAttribute("data-mnb-linked")).toBeNull();
    at("view.memory").click();
    await soon(() => expect(find(".mnb-cost-picture .mnb-hint").textContent).toBe("it does not compile"));
    expect(find<HTMLElement>(".mnb-cost-picture .mnb-drawing").hidden).toBe(true);
    at("view.beside").click();
    await soon(() =>
      expect(sent("request_cost_picture").at(-1)).toMatchObject({
        view: "beside",
        sources: ["analytic", "compiled"],
        figure: "flops",
      }),
    );
  });

  test("opens and closes a block of the memory picture", async () => {
    session.memory = SVG.replace('data-block="mlp_0/linear_0"', 'data-block="mlp_0"');
    at("view.memory").click();
    await soon(() => expect(drawing().querySelectorAll("[data-block]")).toHaveLength(3));
    const open = at("open_block");
    expect([open.hidden, find(".mnb-cost-inside").textContent]).toEqual([
      true,
      "Select a block to split it into its inner blocks.",
    ]);
    find("[data-block=mlp_0]", drawing()).dispatchEvent(new MouseEvent("click", { bubbles: true, composed: true }));
    expect([open.hidden, open.textContent]).toEqual([false, "Open mlp_0"]);
    open.click();
    expect((document.activeElement as HTMLElement).getAttribute("aria-label")).toBe("Close mlp_0");
    await soon(() => expect(sent("request_cost_picture").map(({ opened }) => opened)).toEqual([[], ["mlp_0"]]));
    (document.activeElement as HTMLElement).click();
    expect(document.activeElement).toBe(open);
    await soon(() => expect(sent("request_cost_picture").at(-1)).toMatchObject({ opened: [] }));
    find("[data-block=mlp_0]", drawing()).dispatchEvent(new MouseEvent("dblclick", { bubbles: true, composed: true }));
    expect([find(".mnb-removable").textContent, find<HTMLElement>(".mnb-cost-inside > .mnb-muted").hidden]).toEqual([
      "mlp_0 ✕",
      true,
    ]);
  });

  test("shows decode errors and recovers from them", async () => {
    session.isCut = true;
    at("source.lowered").click();
    await soon(() =>
      expect(find(".mnb-cost-problems").textContent).toMatch(
        /^Lowered costs: The message from the kernel could not be shown: .+ Run the cell again to load it\.$/,
      ),
    );
    expect(find<HTMLElement>(".mnb-cost-waiting").hidden).toBe(true);
    key(find('tr[data-mnb-cost="linear_0"]'), "ArrowRight");
    await soon(() =>
      expect(find(".mnb-cost-detail").textContent).toMatch(/^The message from the kernel could not be shown/),
    );
    at("view.treemap").click();
    await soon(() =>
      expect(find(".mnb-cost-picture .mnb-hint").textContent).toMatch(
        /^The message from the kernel could not be shown/,
      ),
    );
    await askWhatIf();
    type("64");
    await soon(() =>
      expect(find('[data-mnb-part="what-if"]').textContent).toMatch(/^The message from the kernel could not be shown/),
    );
    session.isCut = false;
    type("65");
    await soon(() => expect(find('[data-mnb-part="what-if"]').textContent).toBe("traced again in 3 ms."));
  });

  const batch = (): HTMLInputElement => find<HTMLInputElement>('.mnb-whatif [data-mnb-field="batch"] .mnb-number');
  const type = (value: string): void => {
    batch().value = value;
    batch().dispatchEvent(new Event("input"));
    batch().dispatchEvent(new Event("change"));
  };
  const askWhatIf = async (): Promise<void> => {
    at("view.what_if").click();
    await soon(() => expect(batch().value).toBe("32"));
  };
  const wrong = (): string => find('.mnb-whatif [data-mnb-field="batch"] .mnb-field-problem').textContent!;
  const flops = (): string => find('[data-mnb-whatif="flops"]').textContent!;

  test("compares, applies and rejects settings", async () => {
    find<HTMLElement>('[data-mnb-node="linear_0"]').dispatchEvent(
      new MouseEvent("pointerdown", { bubbles: true, button: 0 }),
    );
    await askWhatIf();
    type("64");
    await soon(() => expect(flops()).toBe("FLOPs10 FLOP20 FLOP×2"));
    expect(find('[data-mnb-whatif="peak_bytes"] td').title).toBe("nobody says");
    expect(find('[data-mnb-part="what-if"]').textContent).toBe("traced again in 3 ms.");
    find('[data-mnb-action="whatif.compile"]').click();
    await soon(() => expect(find(".mnb-whatif-table thead").textContent).toContain("compiled before"));
    type("4095");
    await soon(() => expect(find(".mnb-whatif .mnb-notice").textContent).toContain("it does not fit."));
    // The last valid answer stays, with its changes.
    expect([flops(), find<HTMLElement>(".mnb-whatif-main > .mnb-badge").textContent]).toEqual([
      "FLOPs10 FLOP20 FLOP×210 FLOP20 FLOP×2",
      "Costs for batch = 64",
    ]);
    type("64");
    await soon(() => expect(find(".mnb-whatif .mnb-notice").hidden).toBe(true));
    find('[data-mnb-action="whatif.apply"]').click();
    await soon(() => expect(sent("apply_what_if")).toEqual([{ changes: [["", "batch", 64]] }]));
    await soon(() => expect(find('[data-mnb-part="what-if"]').textContent).toContain("Change a setting"));
    expect(sent("what_if")[0]).toMatchObject({ changes: [["", "batch", 64]], figure: "flops", compile: false });
  });

  test("shows invalid input at the field and keeps the last result", async () => {
    await askWhatIf();
    type("64");
    await soon(() => expect(flops()).toBe("FLOPs10 FLOP20 FLOP×2"));
    const count = sent("what_if").length;
    const why = ["-5", "abc", "0", "1e12", "2.5", ""].map((value) => {
      type(value);
      expect(batch().getAttribute("aria-invalid")).toBe("true");
      expect(find(`#${batch().getAttribute("aria-describedby")!}`).textContent).toBe(wrong());
      expect(find(".mnb-whatif-table").classList).toContain("mnb-old");
      return wrong();
    });
    const wanted = "Enter a whole number from 1 to 4,096.";
    expect(why).toEqual([
      `“-5” is too small. ${wanted}`,
      `“abc” is not a whole number. ${wanted}`,
      `“0” is too small. ${wanted}`,
      `“1e12” is too large. ${wanted}`,
      `“2.5” is not a whole number. ${wanted}`,
      wanted,
    ]);
    expect(find<HTMLElement>(".mnb-whatif-main > .mnb-badge").textContent).toBe("Costs for batch = 64");
    expect(find('[data-mnb-action="whatif.apply"]').getAttribute("aria-disabled")).toBe("true");
    expect(sent("what_if")).toHaveLength(count);
    key(batch(), "Escape");
    expect([
      batch().value,
      wrong(),
      batch().getAttribute("aria-invalid"),
      find(".mnb-whatif-table").classList.contains("mnb-old"),
    ]).toEqual(["64", "", null, false]);
  });

  test("moves the focus when a change is removed", async () => {
    session.change({ selection: ["linear_0"] });
    await askWhatIf();
    type("64");
    const width = find<HTMLInputElement>('.mnb-whatif [data-mnb-field="dimension"] .mnb-number');
    width.value = "7";
    width.dispatchEvent(new Event("input"));
    width.dispatchEvent(new Event("change"));
    const chips = (): HTMLElement[] => [...el.querySelectorAll<HTMLElement>(".mnb-removable")];
    const labels = (): string[] => chips().map((chip) => chip.textContent!);
    expect(labels()).toEqual(["batch = 64 ✕", "linear_0.dimension = 7 ✕"]);
    const { linear_0: _, ...blocks } = session.snapshot.blocks;
    session.change({ blocks } as Partial<Snapshot>);
    expect(labels()).toEqual(["batch = 64 ✕"]);
    expect(el.querySelector('.mnb-whatif [data-mnb-field="dimension"]')).toBeNull();
    chips()[0]!.focus();
    chips()[0]!.click();
    expect([chips().length, document.activeElement]).toEqual([0, batch()]);
    type("65");
    find('[data-mnb-action="whatif.reset"]').focus();
    find('[data-mnb-action="whatif.reset"]').click();
    expect([batch().value, document.activeElement]).toEqual(["32", batch()]);
  });

  test("shows why a program has no settings", () => {
    at("view.what_if").click();
    const costs = session.snapshot.costs!;
    const problem = {
      code: "StageUnavailableError",
      summary: "it has no numbers.",
      facts: [],
      advice: "inspect it with numbers",
    };
    session.change({
      costs: {
        ...costs,
        what_if: { state: "unavailable", message: "", problem, version: session.snapshot.version, settings: [] },
      },
    } as unknown as Partial<Snapshot>);
    expect(find('[data-mnb-part="what-if"]').textContent).toBe("The cost of other settings is not available:");
    expect(find(".mnb-whatif .mnb-notice").textContent).toBe(
      "StageUnavailableError: it has no numbers.Try: inspect it with numbers",
    );
    expect(find<HTMLElement>(".mnb-whatif-side > .mnb-hint").hidden).toBe(true);
  });

  test("keeps the received costs after the kernel is gone", async () => {
    session.emit("comm:close");
    at("source.compiled").click();
    expect(find(".mnb-cost-problems").textContent).toContain(
      "Not connected to the kernel, so only analytic costs can be shown.",
    );
    at("view.treemap").click();
    expect(find(".mnb-cost-picture .mnb-hint").textContent).toContain(
      "Not connected to the kernel, so pictures cannot be loaded.",
    );
    expect(sent("request_cost")).toEqual([]);
  });
});

test("the workbench builds a long table only once its tab is open", () => {
  const el = document.body.appendChild(document.createElement("div"));
  const rows = (): number => el.querySelectorAll(".mnb-cost-table tbody tr").length;
  const many = Array.from({ length: 300 }, (_, i) => ({ ...cost.rows[0]!, block: `block_${i}` }));
  const model = new FakeCosts({ ...data, snapshot: { ...data.snapshot, cost: { ...cost, rows: many } } });
  let cleanup = mountWorkbench({ model, el });
  expect(rows()).toBe(0);
  el.querySelector<HTMLElement>('[data-mnb-tab="cost"]')!.click();
  expect(rows()).toBe(300);
  cleanup();
  cleanup = mountWorkbench({ model, el });
  expect(rows(), "the tab is restored").toBe(300);
  cleanup();
  el.remove();
});

test("removes scripts and external content from a drawing", () => {
  const drawing = drawingOf(SVG, "light")!;
  expect(drawing.querySelectorAll("script, image, [onclick], [style]")).toHaveLength(0);
  expect(drawing.querySelectorAll("rect")).toHaveLength(3);
  expect(drawing.querySelector("[fill]")!.getAttribute("fill")).toBe("url(#hatch)");
  expect(drawingOf("<svg><g>", "light")).toBeNull();
  expect(
    drawingOf('<svg xmlns="http://www.w3.org/2000/svg"><style>@import "x";</style></svg>', "light")!.textContent,
  ).toBe("");
});

/** The page and the outputs without a kernel. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { columnsOf } from "../dev/fake-model";
import type { MomentData } from "../src/kernel/contract";
import type { RawInstruction, RawStage } from "../src/kernel/messages";
import { linkOutput } from "../src/page/outputs";
import { mountPage } from "../src/page/page";
import { type PackedText, textOf } from "../src/page/packed-text";
import { Selection } from "../src/page/selection";
import { type TextPane, createTextPane } from "../src/page/text-pane";
import { StageText } from "../src/store/links";
import { finderIn } from "./find";

const find = finderIn(() => document.body);
const classed = (look: string): string[] =>
  [...document.querySelectorAll(`.${look}`)].map(
    (element) => element.id || element.getAttribute("data-block") || element.querySelector(".x")?.textContent || "",
  );
const press = (element: Element, key: string): boolean =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const over = (element: Element): boolean => element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
const click = (element: Element): boolean =>
  element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));

beforeAll(() => {
  Element.prototype.scrollIntoView ??= () => {};
  globalThis.ResizeObserver ??= class {
    observe(): void {}
    unobserve(): void {}
    disconnect(): void {}
  };
});
afterEach(() => {
  document.body.replaceChildren();
  vi.restoreAllMocks();
});
/** Collect the files that are offered for download. */
const exported = (): Blob[] => {
  const found: Blob[] = [];
  globalThis.URL.createObjectURL = (blob) => `blob:${found.push(blob as Blob)}`;
  globalThis.URL.revokeObjectURL = () => {};
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => {});
  return found;
};

/** Texts and their packed form, written by tests/viz/test_layout_parity.py. */
const packedCases = (): { text: string; packed: PackedText }[] =>
  JSON.parse(readFileSync(resolve(import.meta.dirname, "../../../../tests/viz/golden/packed_texts.json"), "utf8"));

describe("an output", () => {
  const row = (id: string, e: string, of: string): string =>
    `<div class="l" id="${id}" data-e="${e}" data-of="${of}"><a class="n" href="#x">1</a><span class="x">` +
    `${id}</span></div>`;

  beforeEach(() => {
    document.body.innerHTML = `<div class="mnb-linked">
      <p data-block="a" tabindex="0"></p><p data-block="a/b" tabindex="0"></p><p id="node" data-e="2" tabindex="0"></p>
      <div class="code">${row("j0", "0", "a")}${row("j1", "1", "a/b")}<div class="l" id="plain"></div>
      ${row("j2", "2", "c")}</div>
      <div class="code">${row("h0", "0 1", "a a/b")}${row("h1", "", "c")}</div></div>`;
    linkOutput(find(".mnb-linked"));
  });

  test("highlights what a line, a box or a node is linked to", () => {
    over(find("#j1 .x"));
    expect(classed("on")).toEqual(["a/b", "j1", "h0"]);
    over(find('[data-block="a"]'));
    expect(classed("on")).toEqual(["a", "j0", "j1", "h0"]);
    over(find("#node"));
    expect(classed("on")).toEqual(["node", "j2"]);
    over(find("#h1"));
    expect(classed("on")).toEqual(["h1"]);
    over(find("#plain"));
    expect(classed("on")).toEqual([]);
  });

  test("pins by a click, and releases by a second one", () => {
    expect(click(find("#j0 .n"))).toBe(false);
    expect(classed("pin")).toEqual(["a", "j0", "h0"]);
    expect(find(".n").tabIndex).toBe(-1);
    click(find("#j0"));
    expect(classed("pin")).toEqual([]);
  });

  test("needs only the keyboard", () => {
    press(find('[data-block="a/b"]'), "Enter");
    expect(classed("pin")).toEqual(["a/b", "j1", "h0"]);
    const code = find(".code");
    press(code, "]");
    expect(classed("here")).toEqual(["j1"]);
    press(code, "ArrowDown");
    press(code, "Enter");
    expect(classed("pin")).toEqual(["a/b", "j1", "h0"]); // a line without links cannot be pinned
    press(code, "ArrowDown");
    press(code, "Enter");
    expect(classed("pin")).toEqual(["node", "j2"]);
    press(code, "Escape");
    expect(classed("pin")).toEqual([]);
    press(find('[data-block="a"]'), "Enter");
    press(find('[data-block="a"]'), "Escape"); // from anywhere
    expect(classed("pin")).toEqual([]);
  });

  test("keys skip the lines of a closed fold", () => {
    document.body.innerHTML =
      `<div class="mnb-linked"><div class="code" tabindex="0">` +
      `${row("a", "0", "x")}<details><summary>2 unchanged lines</summary>` +
      `${row("b", "1", "x")}${row("c", "2", "x")}</details>${row("d", "3", "x")}</div></div>`;
    linkOutput(find(".mnb-linked"));
    const walk = (key: string): string[] => {
      press(find(".code"), key);
      return classed("here");
    };
    expect([walk("ArrowDown"), walk("ArrowDown"), walk("ArrowUp")]).toEqual([["a"], ["d"], ["a"]]);
    find<HTMLDetailsElement>("details").open = true;
    expect(walk("ArrowDown")).toEqual(["b"]);
    press(find("summary"), "Enter"); // opens or closes the fold, and pins nothing
    expect(classed("pin")).toEqual([]);
  });
});

describe("a saved page", () => {
  const packed = (raw: object): Record<string, unknown> => columnsOf(raw as RawStage) as Record<string, unknown>;
  const stage = (name: string, text: string, instructions: unknown[]): object => ({
    name,
    title: name,
    language: name,
    unavailable: null,
    ...packed({ text, instructions, equations: {} }),
  });
  const saved = {
    stages: [
      stage("jaxpr", "a = tanh x\nb = exp a\n", [
        [1, 1, "tanh", ["0"], [["one two", 1]], null, "tagged"],
        [2, 1, "exp", ["1"], [["two/inner", 1]], null, "tagged"],
      ]),
      stage("hlo", "fusion", [
        [
          1,
          1,
          "fusion",
          ["0", "1"],
          [
            ["one two", 0.5],
            ["two/inner", 0.5],
          ],
          "backward",
          "inferred",
        ],
      ]),
      { ...stage("llvm", "", []), unavailable: "no compiler" },
    ],
    equations: packed({
      text: "",
      instructions: [],
      equations: { 0: { primitive: "tanh", block: "one two", role: null, source: "train.py:7" } },
    })["equations"],
    paths: { "one%20two": "one two" },
    hues: { "one two": "h1", "two/inner": "h2" },
    shown: ["jaxpr", "hlo"],
    tour: [] as MomentData[],
    passes: ["@ main\n+ new\n- old\n", ""],
    rows: [],
    graph: {
      title: "jaxpr",
      is_model: false,
      roles: [],
      shapes: [],
      idle: [],
      flows: {},
      opened: [],
      boxes: {
        key: ["two", "two/inner", "bucket:0", "repeat:one"],
        name: ["two", "inner", "<b>", "one"],
        kind: ["block", "block", "bucket", "repeat"],
        w: [112, 112, 112, 112],
        h: [64, 64, 64, 64],
        parent: [-1, 0, -1, -1],
        is_group: [true, false, false, false],
        path: ["two", "two/inner", "", ""],
        equations: [[], [], ["0"], []],
        blocks: [[], [], [], ["one two", "two/inner"]],
      },
    },
  };
  const wide = {
    ...saved,
    rows: Array.from(
      { length: 500 },
      (_, at) =>
        `<tr data-block="${at ? `b${at}` : "one%20two"}" tabindex="0"><th scope="row">&lt;i&gt; ${at}</th><td>` +
        `1</td></tr>`,
    ),
  };
  const mount = async (data: object, rows: string): Promise<void> => {
    document.body.innerHTML = `<main class="mnb-page">
      <div class="picture"><svg></svg></div><div class="live" hidden></div><div class="plain"></div>
      <div class="scroll"><table class="cost"><tbody>${rows}</tbody></table></div>
      <ol class="passes"><li><b>1. first</b></li><li><b>2. second</b></li></ol>
      </main><script type="text/plain"></script>`;
    const stream = new Blob([JSON.stringify(data)]).stream().pipeThrough(new CompressionStream("gzip"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    find("script").textContent = btoa(String.fromCharCode(...bytes));
    await mountPage(find(".mnb-page"), find("script"));
  };

  beforeEach(() => mount(saved, '<tr data-block="one%20two"></tr>'));

  const linked = (look: string, stage: string): string[] =>
    [...document.querySelectorAll(`[data-stage="${stage}"] .l.${look} .x`)].map((element) => element.textContent);

  test("links lines, boxes and rows as the widget does", () => {
    over(find('[data-stage="jaxpr"] .l .x'));
    expect(linked("on", "jaxpr")).toEqual(["a = tanh x"]);
    expect(linked("on", "hlo")).toEqual(["fusion"]);
    expect(find("tr").classList.contains("on")).toBe(true);
    over(find("tr"));
    expect(linked("on", "jaxpr")).toEqual(["a = tanh x"]);
    press(find('[data-stage="hlo"] .code'), "ArrowDown");
    press(find('[data-stage="hlo"] .code'), "Enter");
    expect(linked("pin", "jaxpr")).toEqual(["a = tanh x", "b = exp a"]);
    press(find('[data-stage="hlo"] .code'), "Escape");
    expect(linked("pin", "jaxpr")).toEqual([]);
  });

  test("draws lines with colours, stripe and tooltip", () => {
    const row = find('[data-stage="hlo"] .l');
    over(row);
    expect(row.title).toContain("fusion · one two 50 %, two/inner 50 % · backward");
    expect(row.title).toContain("equation 0 tanh · train.py:7");
    expect(row.title).toContain("linked by the lines");
    const margin = find('[data-stage="hlo"] .margin');
    expect(find(".n", margin).textContent).toBe("1");
    expect(find(".s", margin).className).toBe("s i rb");
    expect([...margin.querySelectorAll("i")].map((bar) => bar.className)).toEqual(["h1", "h2"]);
    expect(find('[data-stage="jaxpr"] .f').textContent).toBe("tanh");
  });

  const node = (key: string): HTMLElement => find(`[data-mnb-node="${key}"]`);

  test("opens and closes nodes of the graph, and shows and hides stages", () => {
    press(node("two"), "ArrowRight");
    expect(node("two").getAttribute("aria-expanded")).toBe("true");
    press(node("two/inner"), "Enter");
    expect(linked("pin", "jaxpr")).toEqual(["b = exp a"]);
    node("repeat:one").focus();
    press(node("repeat:one"), "Escape");
    press(node("repeat:one"), "Enter");
    expect(linked("pin", "jaxpr"), "all blocks of a repeated part").toEqual(["a = tanh x", "b = exp a"]);
    node("two").focus();
    press(node("two"), "ArrowLeft");
    expect(document.querySelector('[data-mnb-node="two/inner"]')).toBeNull();
    click(
      [...document.querySelectorAll<HTMLElement>(".tools button")].find(
        (button) => button.textContent === "Reset view",
      )!,
    );
    expect(node("two").getAttribute("aria-expanded")).toBe("false");
    const tabs = [...document.querySelectorAll<HTMLElement>(".bar-of-stages button")];
    click(tabs[2]!);
    expect(find('[data-stage="llvm"] .gone').textContent).toBe("not available: no compiler");
    expect(document.querySelector('[data-stage="llvm"] .code')).toBeNull();
    click(tabs[1]!);
    expect(document.querySelector('[data-stage="hlo"]')).toBeNull();
  });

  test("a lecture walks through moments, dims lines and hides the second stage", async () => {
    const moment = { stages: ["jaxpr", "hlo"], block: "", equations: [], caption: "", is_hidden: false };
    const tour: MomentData[] = [
      { ...moment, stages: ["hlo"], block: "two", caption: "<i>one" },
      { ...moment, equations: ["0"], is_hidden: true },
    ];
    await mount({ ...saved, tour }, "");
    const root = find(".mnb-page");
    const stages = (): (string | undefined)[] =>
      [...document.querySelectorAll<HTMLElement>(".live .pane")].map((pane) => pane.dataset["stage"]);
    expect(find(".mnb-caption").textContent, "a page with a tour starts with it").toBe("1 / 2 · <i>one");
    press(find(".code"), "5");
    expect(root.classList.contains("lecture")).toBe(false);
    press(document.body, ".");
    expect(stages(), "keys act in a lecture only").toEqual(["hlo"]);
    find(".code").dispatchEvent(new KeyboardEvent("keydown", { key: "5", ctrlKey: true, bubbles: true }));
    expect(root.classList.contains("lecture"), "the browser changes the tab").toBe(false);
    press(find(".code"), "5");
    expect(root.classList.contains("lecture")).toBe(true);
    expect(find(".mnb-caption").textContent).toBe("1 / 2 · <i>one");
    expect([stages(), linked("pin", "hlo")]).toEqual([["hlo"], ["fusion"]]);
    press(document.body, ".");
    expect(find(".mnb-caption").textContent).toBe("2 / 2");
    expect([stages(), linked("pin", "jaxpr")]).toEqual([["jaxpr", "hlo"], ["a = tanh x"]]);
    expect(root.hasAttribute("data-mnb-hide")).toBe(true);
    for (const _ of [1, 2]) {
      press(document.body, "PageDown");
      expect(root.hasAttribute("data-mnb-hide"), "the next step reveals, and the last moment stays").toBe(false);
    }
    press(document.body, "h");
    expect(root.hasAttribute("data-mnb-hide")).toBe(true);
    press(document.body, "s");
    expect(root.hasAttribute("data-mnb-spot"), "a selected equation has lines, but no block").toBe(true);
    press(document.body, "]");
    expect(find(".live .l.here .x").textContent).toBe("a = tanh x");
    const inside = find('[data-stage="hlo"] .code').appendChild(document.createElement("button"));
    inside.focus();
    press(inside, "]");
    expect(find('[data-stage="hlo"]').contains(document.activeElement), "the focus stays in its pane").toBe(true);
    const [button] = [...document.querySelectorAll<HTMLElement>(".mnb-lecture button")].slice(-2);
    click(button!);
    expect([stages(), root.hasAttribute("data-mnb-spot"), root.hasAttribute("data-mnb-hide")]).toEqual([
      ["hlo"],
      false,
      false,
    ]);
    press(document.body, "s");
    expect(root.hasAttribute("data-mnb-spot")).toBe(true);
    press(find(".code"), "Escape");
    expect(root.hasAttribute("data-mnb-spot"), "nothing is in the light").toBe(false);
    press(document.body, "s");
    expect(root.hasAttribute("data-mnb-spot"), "nothing is selected").toBe(false);
    click(find('[data-mnb-action="lecture"]'));
    expect([root.classList.contains("lecture"), find(".mnb-lecture").hidden]).toEqual([false, true]);
  });

  test("exports the page as it was saved, and its data", async () => {
    const before = find(".passes").innerHTML;
    const { text: _, ...columns } = stage("asm", "", [[1, 1, "tanh", ["0"], [["one two", 1]], null, "tagged"]]) as {
      text: string;
    };
    const { text, packed: long } = packedCases().at(-1)!;
    await mount({ ...saved, stages: [...saved.stages, { ...columns, ...long }], name: "x" }, "");
    const files = exported();
    const names = [...document.querySelectorAll(".mnb-action")].map((action) => action.textContent);
    expect(names).toEqual([
      "PNG, twice the size",
      "SVG",
      "HTML: this page",
      "JSON: all stages",
      "PDF or paper: print the page",
    ]);
    for (const name of names.slice(2, 4))
      click([...document.querySelectorAll<HTMLElement>(".mnb-action")].find((action) => action.textContent === name)!);
    await vi.waitFor(() => expect(files).toHaveLength(2));
    const [html, json] = await Promise.all(files.sort((a, b) => (a.type < b.type ? 1 : -1)).map((blob) => blob.text()));
    const page = new DOMParser().parseFromString(html!, "text/html");
    expect(page.querySelector("main")!.outerHTML).toContain('<div class="picture"><svg></svg></div>');
    expect([
      page.querySelectorAll(".mnb-board, .tools").length,
      page.querySelectorAll("script").length,
      page.querySelector(".passes")!.textContent,
    ]).toEqual([0, 1, "1. first2. second"]);
    expect(before).not.toBe("");
    const data = JSON.parse(json!);
    expect([data.format, data.version, data.stages.map((one: { text: string }) => one.text), data.graph.title]).toEqual(
      ["mithril_nb.page", 1, ["a = tanh x\nb = exp a\n", "fusion", "", text], "jaxpr"],
    );
    expect(Object.keys(data.stages.at(-1)).sort()).toEqual(Object.keys(data.stages[0]).sort());
  });

  test("prints the whole text of the shown stages, up to a limit", async () => {
    const printed = (stage: string): string[] =>
      [...document.querySelectorAll(`[data-stage="${stage}"] .printed > *`)].map((row) => row.textContent);
    const event = (type: string): boolean => globalThis.dispatchEvent(new Event(type));
    event("beforeprint");
    expect([printed("jaxpr"), printed("hlo"), printed("llvm")]).toEqual([
      ["1a = tanh x", "2b = exp a"],
      ["1fusion"],
      [],
    ]);
    event("beforeprint");
    expect(printed("hlo")).toEqual(["1fusion"]);
    event("afterprint");
    expect(printed("jaxpr")).toEqual([]);
    const text = Array<string>(4000).fill("<b>").join("\n");
    await mount({ ...saved, stages: [stage("jaxpr", text, []), ...saved.stages.slice(1)] }, "");
    event("beforeprint");
    expect([printed("jaxpr").length, printed("jaxpr")[0], printed("jaxpr").at(-1)]).toEqual([
      3001,
      "1<b>",
      "1,000 more rows are not printed.",
    ]);
    event("afterprint");
  });

  test("shows the diff of the selected pass", () => {
    const looks = (): string[] => [...document.querySelectorAll(".difference .l")].map((row) => row.className);
    expect(looks()).toEqual(["l where", "l plus", "l minus"]);
    press(find(".passes li"), "ArrowDown");
    expect(find(".difference b").textContent).toBe("2. second");
    expect(find(".difference .x").textContent).toBe("only names or layouts changed");
  });

  test("draws only the visible rows of a long table, and links all of them", async () => {
    await mount(wide, "<tr><th>and 500 smaller</th></tr>");
    const rows = [...document.querySelectorAll<HTMLElement>("tr[data-line]")];
    expect(rows.length).toBeLessThan(40);
    expect(find("table").getAttribute("aria-rowcount")).toBe("500");
    expect(rows[0]!.textContent).toBe("<i> 01");
    expect(document.body.textContent).not.toContain("smaller");
    over(rows[0]!);
    expect(linked("on", "jaxpr")).toEqual(["a = tanh x"]);
    press(find(".long"), "ArrowDown");
    expect(classed("here")).toEqual(["one%20two"]);
    press(find(".long"), "Enter");
    expect(linked("pin", "jaxpr")).toEqual(["a = tanh x"]);
    expect(classed("here")).toEqual(["one%20two"]);
    click(rows[1]!);
    const pinned = (): (string | undefined)[] =>
      [...document.querySelectorAll<HTMLElement>("tr.pin")].map((row) => row.dataset["block"]);
    expect(pinned()).toEqual(["b1"]);
    press(find(".long"), "Escape");
    expect(pinned()).toEqual([]);
  });

  test("adds a part to the pinned ones, removes it, and releases a part that is pinned again", () => {
    const selection = new Selection(new Map(), () => undefined);
    const [a, b] = ["a", "b"].map((path) => ({ kind: "block" as const, path }));
    selection.pin(a!);
    selection.pin([b!], true);
    expect(selection.anchors.pin).toEqual([a, b]);
    selection.pin([a!], true);
    expect(selection.anchors.pin).toEqual([b]);
    selection.pin(b!);
    expect(selection.anchors.pin).toEqual([]);
  });

  test("draws links once while the pointer moves over the lines of one kernel", () => {
    const equations = ["0", "1"];
    const shares: [string, number][] = [["a", 1]];
    const instructions = [1, 2, 3].map((line): RawInstruction => [
      line,
      1,
      "mov",
      line < 3 ? equations : ["2"],
      shares,
      null,
      null,
    ]);
    const text = new StageText("asm", 0, "mov\nmov\nmov", { instructions, equations: {} });
    let painted = 0;
    const selection = new Selection(new Map([["asm", text]]), () => painted++);
    const pane = createTextPane(
      { name: "asm", title: "asm", language: "", unavailable: null, text },
      selection,
      {},
      undefined,
      () => "",
    );
    document.body.replaceChildren(pane.root);
    pane.rows.draw();
    const rows = [...document.querySelectorAll<HTMLElement>(".l")];
    for (const row of [rows[0]!, rows[1]!]) over(row);
    expect(painted).toBe(1);
    expect(rows.map((row) => row.classList.contains("on"))).toEqual([false, true, false]);
    over(rows[2]!);
    expect(painted).toBe(2);
    expect(selection.equations("on")).toEqual(["2"]);
    over(rows[1]!);
    expect(selection.equations("on")).toEqual(["0", "1"]);
  });

  test("links a row that scrolls below the pointer once the scrolling ends", async () => {
    await mount(wide, "<tr><th>and 500 smaller</th></tr>");
    window.dispatchEvent(new Event("scroll"));
    over(document.querySelector("tr[data-line]")!);
    expect(linked("on", "jaxpr")).toEqual([]);
    await vi.waitFor(() => expect(linked("on", "jaxpr")).toEqual(["a = tanh x"]));
  });

  test("folds long signatures and blocks, by click and by key", async () => {
    document.body.innerHTML = '<div class="x"></div>';
    const lines = [
      "{ lambda",
      ...Array<string>(12).fill("  a:f32[]"),
      "  let",
      ...Array<string>(4).fill("  b = add a"),
      ...Array<string>(3).fill("  c = mul b"),
    ];
    const instructions = lines.flatMap((line, i): RawInstruction[] =>
      line.includes(" = ")
        ? [[i + 1, 1, "add", [], [[line.includes("add") ? "one" : "two", 1]], "forward", null]]
        : line.includes("a:")
          ? [[i + 1, 1, "parameter", [], [], null, null]]
          : [],
    );
    const text = new StageText("jaxpr", 0, lines.join("\n"), { instructions, equations: {} });
    const selection = new Selection(new Map([["jaxpr", text]]), () => pane.paint());
    const pane: TextPane = createTextPane(
      { name: "jaxpr", title: "jaxpr", language: "jaxpr", unavailable: null, text },
      selection,
      {},
      undefined,
      (block) => `cost of ${block}`,
    );
    document.body.append(pane.root);
    pane.rows.draw();
    const shown = (): string[] => [...document.querySelectorAll(".l .x")].map((row) => row.textContent.trim());
    const code = find(".code");
    expect(shown()).toEqual([
      "{ lambda",
      "12 parameters",
      "let",
      ...Array<string>(4).fill("b = add a"),
      ...Array<string>(3).fill("c = mul b"),
    ]);
    press(code, "Z");
    expect(shown()).toEqual([
      "{ lambda",
      "12 parameters",
      "let",
      "one: 4 lines, cost of one",
      "two: 3 lines, cost of two",
    ]);
    for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown"]) press(code, key);
    expect(pane.rows.here).toBe(15);
    press(code, "Enter");
    expect(shown().slice(3)).toEqual([...Array<string>(4).fill("b = add a"), "two: 3 lines, cost of two"]);
    press(code, "z");
    expect(shown().slice(3)).toEqual(["one: 4 lines, cost of one", "two: 3 lines, cost of two"]);
    click(find(".fold"));
    expect(shown()).toContain("a:f32[]");
    press(code, "Z");
    press(code, "Z");
    code.scrollTop = 0;
    pane.rows.draw();
    expect(shown()).toEqual(lines.slice(0, shown().length).map((line) => line.trim()));
    expect(shown().length).toBeGreaterThan(12);
    selection.pin({ kind: "block", path: "two" });
    press(code, "b");
    expect(shown()).toEqual(["18 lines of other blocks", ...Array<string>(3).fill("c = mul b")]);
    press(code, "b");
    const menu = find<HTMLSelectElement>("select");
    menu.dispatchEvent(new Event("focus"));
    expect([...menu.options].map((option) => option.textContent)).toEqual(["Blocks", "one", "two"]);
  });
});

test("packed texts are those of Python", () => {
  const cases = packedCases();
  expect(cases.length).toBeGreaterThan(3);
  for (const { text, packed } of cases) expect(textOf(packed)).toBe(text);
  expect(textOf({ text: "plain" })).toBe("plain");
});

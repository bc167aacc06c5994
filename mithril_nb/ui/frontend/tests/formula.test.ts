import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession, type Sent, gzip } from "../dev/fake-model";
import type { BlockFormula, FormulaTerm } from "../src/kernel/contract";
import { mountWorkbench } from "../src/workbench";
import { finderIn } from "./find";
import { shortData } from "./short-data";

const data = shortData(5);
const CLICK = { bubbles: true, button: 0, pointerId: 1 };
const term = (
  formula: string,
  letters: FormulaTerm["letters"],
  flops: number | null,
  more: Partial<FormulaTerm> = {},
): FormulaTerm => ({
  formula,
  letters,
  times: 1,
  role: null,
  opcodes: ["dot_general"],
  flops,
  why: "",
  ...more,
});
const LINEAR: Partial<BlockFormula> = {
  short: "2·32·128·64 + 4096",
  whole: "2·32·128·64 + 4096",
  terms: [
    term(
      "2·B·M·N·K",
      [
        ["B", 1],
        ["M", 32],
        ["N", 128],
        ["K", 64],
      ],
      524288,
    ),
    term("n", [["n", 4096]], 4096, { opcodes: ["add"] }),
  ],
  legend: [
    ["B", "batch"],
    ["n", "<i>items</i>"],
  ],
  text: "linear_0: 2·32·128·64 + 4096\n    ...",
};

/** Replies with the formula of a block. */
class Counting extends FakeSession {
  answers: Record<string, Partial<BlockFormula>> = { linear_0: LINEAR };
  isCut = false;
  rejection: string | null = null;
  isSilent = false;
  protected override answer(command: Sent): void {
    if (command.name === "request_formula" && (this.rejection !== null || this.isSilent)) {
      const error =
        this.rejection === null ? null : { code: "SessionError", summary: this.rejection, facts: [], advice: "" };
      this.message({ type: "reply", id: command.id, ok: false, error });
      return;
    }
    if (command.name === "request_formula") void this.sendFormula(command.args["block"]);
    super.answer(command);
  }
  async sendFormula(block: string): Promise<void> {
    const { version } = this.snapshot;
    const found = {
      block,
      version,
      short: "",
      whole: "",
      terms: [],
      legend: [],
      left: 0,
      left_flops: 0,
      why: "",
      text: "",
      ...this.answers[block],
    };
    const whole = await gzip(JSON.stringify(found));
    this.message({ type: "formula", block, version }, [
      this.isCut ? new DataView(whole.buffer, 0, whole.byteLength >> 1) : whole,
    ]);
  }
}

describe("the formula of the selected block", () => {
  let session: Counting;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const part = (): HTMLElement => find('[data-mnb-part="formula"]');
  const state = (): string | undefined => part().dataset["mnbState"];
  const soon = (look: () => void): Promise<void> => vi.waitFor(look, { timeout: 5000 });
  const seen = (selector: string): string[] =>
    [...part().querySelectorAll(selector)].map((one) => one.textContent ?? "");
  const select = (path: string): void => {
    for (const name of ["pointerdown", "pointerup", "click"])
      find(`[data-mnb-node="${path}"]`).dispatchEvent(new MouseEvent(name, CLICK));
  };
  const requests = (): unknown[] =>
    session.sent.filter(({ name }) => name === "request_formula").map(({ args }) => args);
  beforeEach(() => {
    session = new Counting(data);
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountWorkbench({ model: session, el });
  });
  afterEach(() => {
    cleanup();
    expect(session.listening).toBe(0);
    el.remove();
  });

  test("shows numbers, terms and legend, and is copied", async () => {
    expect(part().hidden).toBe(true);
    select("linear_0");
    expect([state(), seen(".mnb-count-status")]).toEqual(["loading", ["Computing…"]]);
    await soon(() => expect(state()).toBe("ready"));
    expect(seen(":scope > .mnb-count")).toEqual(["2·32·128·64 + 4096"]);
    expect(seen("summary")).toEqual(["Terms (2)"]);
    expect(seen(".mnb-term > *")).toEqual([
      "2·B·M·N·K",
      "B = 1, M = 32, N = 128, K = 64",
      "524 kFLOP · dot_general",
      "n",
      "n = 4,096",
      "4.10 kFLOP · add",
    ]);
    expect(seen(".mnb-count-legend")).toEqual(["B: batch · n: <i>items</i>"]);
    expect(find(".mnb-term-sum").title).toBe("524,288 FLOP");
    expect(find<HTMLDetailsElement>(".mnb-block-formula details").open).toBe(false);
    session.change({});
    expect(requests()).toEqual([{ block: "linear_0" }]);
    const copied = vi.fn(async () => undefined);
    Object.defineProperty(navigator, "clipboard", { value: { writeText: copied }, configurable: true });
    find('[data-mnb-action="formula.copy"]').click();
    expect(copied).toHaveBeenCalledWith(LINEAR.text);
  });

  test("is requested again after the model changes", async () => {
    select("linear_0");
    await soon(() => expect(state()).toBe("ready"));
    const { cost } = session.snapshot;
    session.change({ version: 2, cost: { ...cost!, stale: true } });
    expect([state(), requests().length]).toEqual(["stale", 1]);
    expect(part().classList.contains("mnb-count-old")).toBe(true);
    session.change({ version: 2, cost: { ...cost!, stale: false } });
    await soon(() => expect([state(), requests().length]).toEqual(["ready", 2]));
    session.change({
      version: 3,
      cost: { ...cost!, stale: true },
      problems: [
        { code: "ShapeError", summary: "does not fit.", facts: [], advice: "", block: "", port: "", edge: null },
      ],
    });
    expect([state(), seen(".mnb-count-status")]).toEqual(["stale", ["Costs return once the errors are fixed."]]);
  });

  test("shows unknown terms, omitted terms and reasons", async () => {
    session.answers = {
      linear_0: {
        short: "8 + …",
        whole: "8 + 7 + unknown (1 × while: trip count unknown)",
        terms: [
          term("2·n", [["n", "batch"]], null, {
            times: null,
            role: "backward",
            opcodes: ["mul", "add"],
            why: "trip count unknown",
          }),
          term("", [], null, { opcodes: ["pure_callback"], why: "no rule: pure_callback" }),
          term("n", [["n", 4]], 8, { times: 2 }),
        ],
        left: 3,
        left_flops: null,
      },
      gelu_0: { why: "its equations only move data, or give it another name", short: "0", whole: "0" },
    };
    select("linear_0");
    await soon(() => expect(state()).toBe("ready"));
    expect(seen(".mnb-terms > li")).toEqual([
      "? × 2·nn = batchunknown: trip count unknown · mul, add, backward",
      "unknown: no rule: pure_callback · pure_callback",
      "2 × nn = 48 FLOP · dot_general",
      "and 3 more · –",
    ]);
    expect(el.querySelectorAll(".mnb-term-unknown")).toHaveLength(2);
    expect(find(".mnb-count-legend").hidden).toBe(true);
    expect(seen(".mnb-count-whole")).toEqual(["8 + 7 + unknown (1 × while: trip count unknown)"]);
    select("gelu_0");
    await soon(() =>
      expect(seen(".mnb-count-status")).toEqual(["its equations only move data, or give it another name"]),
    );
    expect([find<HTMLElement>(".mnb-block-formula details").hidden, seen(":scope > .mnb-count")]).toEqual([
      true,
      ["0"],
    ]);
  });

  test("shows names as text and ignores other blocks' replies", async () => {
    session.answers = {
      linear_0: {
        ...LINEAR,
        short: "<b>2</b>",
        terms: [term("<img src=x>", [["<i>", "<u>"]], 1, { opcodes: ["<s>"] })],
      },
    };
    select("linear_0");
    await soon(() => expect(state()).toBe("ready"));
    expect(part().querySelector("img, b, i, u, s")).toBeNull();
    expect(seen(".mnb-term > *")).toEqual(["<img src=x>", "<i> = <u>", "1 FLOP · <s>"]);
    await session.sendFormula("gelu_0");
    await new Promise((done) => setTimeout(done, 50));
    expect(seen(":scope > .mnb-count")).toEqual(["<b>2</b>"]);
  });

  test("shows rejections and repeats unanswered requests", async () => {
    session.rejection = "'linear_0' is <b>gone</b>.";
    select("linear_0");
    await soon(() => expect([state(), seen(".mnb-count-status")]).toEqual(["failed", ["'linear_0' is <b>gone</b>."]]));
    session.rejection = null;
    session.isSilent = true;
    select("gelu_0");
    await soon(() => expect(requests()).toHaveLength(2));
    session.isSilent = false;
    session.answers = { gelu_0: { short: "8", whole: "8" } };
    await new Promise((done) => setTimeout(done, 20));
    session.change({});
    await soon(() => expect([state(), requests().length]).toEqual(["ready", 3]));
  });

  test("shows decode errors", async () => {
    session.isCut = true;
    select("linear_0");
    await soon(() => expect(state()).toBe("failed"));
    expect(seen(".mnb-count-status")[0]).toMatch(
      /^The message from the kernel could not be shown: .+ Run the cell again to load it\.$/,
    );
    expect(find('[data-mnb-action="formula.copy"]').hidden).toBe(true);
  });
});

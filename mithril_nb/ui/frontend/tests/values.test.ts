import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession, type Sent, gzip } from "../dev/fake-model";
import type { ValuePicture } from "../src/kernel/contract";
import { lines, parsed, sidesOf, stroked } from "../src/editor/own-sample";
import { mountWorkbench } from "../src/workbench";
import { finderIn } from "./find";
import { shortData } from "./short-data";

const data = shortData(5);

/** Computes the values of a sample at once, and replies with a picture. */
class Feeding extends FakeSession {
  feed(change: object): void {
    const { values } = this.snapshot;
    const fed = { ...values, is_shown: true, samples: 3, version: values.version + 1, ...change };
    this.change({ values: { ...fed, sample: fed.sample % 3 } });
  }
  protected override answer(command: Sent): void {
    super.answer(command);
    if (command.name === "show_sample") this.feed(command.args);
    if (command.name === "hide_values") this.feed({ is_shown: false });
    if (command.name === "request_value") void this.reply(String(command.args["block"]));
  }
  async reply(block: string): Promise<void> {
    const { version, sample } = this.snapshot.values;
    const picture: ValuePicture = { title: "output", svg: "<svg/>", about: `map ${sample}`, rows: [["mean", "0.5"]] };
    const inputs = { image: { shape: [1, 4, 4], numbers: Array<number>(16).fill(0) } };
    this.message({ type: "value", block, version, inputs }, [await gzip(JSON.stringify([picture]))]);
  }
}

describe("the values of a sample", () => {
  let session: Feeding;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const part = (): HTMLElement => find('[data-mnb-part="values"]');
  const click = (action: string): void => find(`[data-mnb-action="values.${action}"]`).click();
  const seen = (text: string): Promise<void> =>
    vi.waitFor(() => expect(part().textContent + (part().querySelector("img")?.alt ?? "")).toContain(text));
  const sent = (): unknown[] => session.sent.filter(({ name }) => name === "show_sample").map(({ args }) => args);
  beforeEach(() => {
    session = new Feeding(data);
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountWorkbench({ model: session, el });
  });
  afterEach(() => {
    cleanup();
    el.remove();
  });

  test("are fed, stepped with buttons and keys past both ends, and hidden", async () => {
    expect(part().querySelector("img")).toBeNull();
    click("show");
    await seen("map 0");
    expect(part().textContent).toContain("sample 0 of 3");
    click("previous");
    await seen("map 2");
    click("next");
    await seen("map 0");
    find(".mnb-canvas").dispatchEvent(new KeyboardEvent("keydown", { key: ".", bubbles: true }));
    await seen("map 1");
    click("gradients");
    await vi.waitFor(() => expect(sent().at(-1)).toEqual({ sample: 1, gradients: true, values: null }));
    click("hide");
    await vi.waitFor(() => expect(part().querySelector("img")).toBeNull());
  });

  test("are of the user's numbers until another sample is shown", async () => {
    click("show");
    await seen("Draw or type the input");
    const field = find<HTMLTextAreaElement>('[data-mnb-action="values.type"]');
    const type = (text: string): void => {
      field.value = text;
      field.dispatchEvent(new Event("change", { bubbles: true }));
    };
    type("1 2 x");
    await seen("“x” is not a number.");
    type("1 2");
    await seen("The input has 16 numbers, the text 2.");
    const numbers = Array.from({ length: 16 }, (_, i) => i / 8);
    type(`[${numbers.join(", ")}]`);
    await vi.waitFor(() => expect(sent().at(-1)).toEqual({ sample: 0, gradients: false, values: { image: numbers } }));
    session.feed({ own: true });
    await seen("your values");
    expect(field.value.split("\n")[1]).toBe("0.5 0.625 0.75 0.875");
    click("gradients");
    await vi.waitFor(() => expect(sent().at(-1)).toEqual({ sample: 0, gradients: true, values: { image: numbers } }));
    click("next");
    session.feed({ own: false });
    await vi.waitFor(() => expect(field.value.split("\n")[1]).toBe("0 0 0 0"));
  });

  test.each([
    [4, 1, [0, 1, 0]],
    [16, 0.5, [0.5, 1, 0.5]],
  ])("of an image with side %i follow a stroke", (side, _, row) => {
    const blank = Array<number>(side * side).fill(0);
    const drawn = stroked(blank, [side, side], 2, 1, 1);
    expect(drawn.slice(side + 1, side + 4)).toEqual(row);
    expect(stroked(drawn, [side, side], 2, 1, 0)[side + 2]).toBe(0);
    expect(stroked(blank, [side, side], 0, 0, 1)[0]).toBe(1);
  });

  test("are an image with one channel, or only numbers", () => {
    const sides = (...shape: number[]) => sidesOf({ shape, numbers: [] });
    expect([sides(1, 1, 8, 8), sides(1, 28, 28, 1), sides(1, 4), sides(1, 3, 8, 8), sides(1, 2, 9)]).toEqual([
      [8, 8],
      [28, 28],
      null,
      null,
      null,
    ]);
    expect(parsed(lines({ shape: [2, 2], numbers: [0.1, 1e-9, -3, 4] }), 4)).toEqual([0.1, 1e-9, -3, 4]);
  });

  test("say why there are none", async () => {
    session.feed({ message: "gradients need data with targets." });
    await seen("gradients need data with targets.");
    expect(part().querySelector("img")).toBeNull();
  });
});

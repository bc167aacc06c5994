import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession, type Sent, gzip } from "../dev/fake-model";
import type { ValuePicture } from "../src/kernel/contract";
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
    this.message({ type: "value", block, version }, [await gzip(JSON.stringify([picture]))]);
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
    await vi.waitFor(() => expect(sent().at(-1)).toEqual({ sample: 1, gradients: true }));
    click("hide");
    await vi.waitFor(() => expect(part().querySelector("img")).toBeNull());
  });

  test("say why there are none", async () => {
    session.feed({ message: "gradients need data with targets." });
    await seen("gradients need data with targets.");
    expect(part().querySelector("img")).toBeNull();
  });
});

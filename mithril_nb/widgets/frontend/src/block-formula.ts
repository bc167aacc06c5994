/** By which formula the compute of the selected block is counted: in numbers, and its terms with what their letters stand for. */

import { copyFrom } from "./clipboard";
import { attr, h, iconButton, text } from "./dom";
import { exact, si } from "./format";
import { refusalOf, unpacked } from "./messages";
import type { Store } from "./store";
import type { BlockFormula, FormulaTerm } from "./types";

export class BlockFormulaView {
  readonly root: HTMLElement;
  private readonly sum = h("code", { class: "mnb-count" });
  private readonly said = h("p", { class: "mnb-count-said", role: "status" });
  private readonly letters: HTMLDetailsElement;
  private readonly summary = h("summary", { "data-mnb-action": "formula.letters" });
  private readonly whole = h("code", { class: "mnb-count mnb-count-whole" });
  private readonly terms = h("ul", { class: "mnb-terms" });
  private readonly legend = h("p", { class: "mnb-count-legend" });
  private readonly copy: HTMLButtonElement;
  private found: (BlockFormula & { refused?: boolean }) | null = null;
  private path = "";
  private asked = "";
  private readonly leave: (() => void)[];

  constructor(private readonly store: Store) {
    this.copy = iconButton("copy", "Copy the formula with its terms, as text", "formula.copy", () => void copyFrom(this.copy, this.found?.text ?? ""));
    this.letters = h("details", {}, this.summary, this.whole, this.terms, this.legend);
    this.root = h(
      "section",
      { class: "mnb-block-formula", "aria-label": "How the compute is counted", "data-mnb-part": "formula", hidden: true },
      h("div", { class: "mnb-row" }, h("span", { class: "mnb-muted" }, "compute is counted as"), h("span", { class: "mnb-grow" }), this.copy),
      this.sum, this.said, this.letters,
    );
    this.leave = [
      store.kernel.on("formula", (message: { block: string; version: number }, buffers) =>
        void unpacked<BlockFormula>(buffers[0], (found) => this.take(found), (why) => this.refuse(message.block, message.version, why))),
      store.kernel.watch(() => this.paint()),
    ];
  }

  destroy(): void {
    for (const leave of this.leave) leave();
  }

  /** Show the formula of a block; `null` is none. Asked for once for each design, when its costs are there. */
  show(path: string | null): void {
    this.root.hidden = path === null;
    this.path = path ?? "";
    if (path === null) return;
    const { version, cost } = this.store.snapshot;
    const key = JSON.stringify([path, version]);
    if (cost !== null && !cost.stale && this.asked !== key) {
      this.asked = key;
      this.store.kernel.latest("formula", "want_formula", { block: path }, (reply) => {
        const why = refusalOf(reply);
        if (why !== null) this.refuse(path, version, why);
        else if (!reply.ok && this.asked === key) this.asked = ""; // nobody answered: it is asked for again
      });
    }
    this.paint();
  }

  private refuse(block: string, version: number, why: string): void {
    this.take({ block, version, short: "", whole: "", terms: [], legend: [], left: 0, left_flops: 0, why, text: why, refused: true });
  }

  private take(found: BlockFormula & { refused?: boolean }): void {
    if (found.block !== this.path) return;
    this.found = found;
    this.paint();
  }

  private paint(): void {
    if (this.root.hidden) return;
    const { snapshot, kernel } = this.store;
    const found = this.found?.block === this.path ? this.found : null;
    const isOld = found !== null && found.version !== snapshot.version;
    attr(this.root, "data-mnb-state", found?.refused ? "failed" : isOld ? "stale" : found ? "ready" : "loading");
    this.root.classList.toggle("mnb-count-old", isOld);
    text(this.sum, found?.short ?? "");
    attr(this.sum, "title", found?.whole ?? null);
    this.sum.hidden = !found?.short;
    text(this.said, this.sentence(found, isOld, kernel.isGone));
    this.said.hidden = this.said.textContent === "";
    this.copy.hidden = !found || found.refused === true;
    this.letters.hidden = !found?.terms.length;
    if (!found) return;
    const count = found.terms.length + found.left;
    text(this.summary, count === 1 ? "in letters" : `in letters: ${count} terms`);
    text(this.whole, found.whole);
    this.whole.hidden = found.whole === found.short;
    const rest = found.left ? [h("li", { class: "mnb-muted" }, `and ${found.left} more · ${si(found.left_flops, "FLOP")}`)] : [];
    this.terms.replaceChildren(...found.terms.map(termOf), ...rest);
    text(this.legend, found.legend.map(([letter, words]) => `${letter}: ${words}`).join(" · "));
    this.legend.hidden = !found.legend.length;
  }

  private sentence(found: BlockFormula | null, isOld: boolean, isLost: boolean): string {
    const { problems } = this.store.snapshot;
    if ((isOld || !found) && problems.length) return "It is counted again when the model has no problems.";
    if (found) return isOld ? "" : found.why;
    return isLost ? "Not connected to the kernel, so the formula cannot be loaded." : "Being worked out.";
  }
}

function termOf({ formula, letters, times, role, opcodes, flops, why }: FormulaTerm): HTMLElement {
  const often = times === 1 || !formula ? "" : `${times === null ? "?" : times.toLocaleString("en-US")} × `;
  const stand = letters.map(([letter, value]) => `${letter} = ${typeof value === "number" ? value.toLocaleString("en-US") : value}`);
  const sum = flops === null ? `not known: ${why}` : si(flops, "FLOP");
  return h(
    "li",
    { class: flops === null ? "mnb-term mnb-term-unknown" : "mnb-term" },
    formula ? h("code", {}, often + formula) : null,
    stand.length ? h("span", { class: "mnb-term-letters" }, stand.join(", ")) : null,
    h("span", { class: "mnb-term-sum", title: flops === null ? null : exact(flops, "FLOP") }, `${sum} · ${[...opcodes, ...(role ? [role] : [])].join(", ")}`),
  );
}

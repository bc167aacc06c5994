/** The FLOP formula of the selected block: with numbers, and its terms with a legend of the letters. */

import { together } from "../dom/calls";
import { copyFrom } from "../dom/clipboard";
import { attr, h, iconButton, text } from "../dom/dom";
import { exact, si } from "../dom/format";
import { errorOf } from "../kernel/messages";
import type { BlockFormula, Term } from "../kernel/contract";
import type { Store } from "../store/store";

export class BlockFormulaView {
  readonly root: HTMLElement;
  private readonly sum = h("code", { class: "mnb-count" });
  private readonly status = h("p", { class: "mnb-count-status", role: "status" });
  private readonly letters: HTMLDetailsElement;
  private readonly summary = h("summary", { "data-mnb-action": "formula.letters" });
  private readonly whole = h("code", { class: "mnb-count mnb-count-whole" });
  private readonly terms = h("ul", { class: "mnb-terms" });
  private readonly legend = h("p", { class: "mnb-count-legend" });
  private readonly copy: HTMLButtonElement;
  private found: (BlockFormula & { hasFailed?: boolean }) | null = null;
  private path = "";
  private requested = "";
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.copy = iconButton(
      "copy",
      "Copy the formula with its terms, as text",
      "formula.copy",
      () => void copyFrom(this.copy, this.found?.text ?? ""),
    );
    this.letters = h("details", {}, this.summary, this.whole, this.terms, this.legend);
    this.root = h(
      "section",
      { class: "mnb-block-formula", "aria-label": "FLOP formula", "data-mnb-part": "formula", hidden: true },
      h(
        "div",
        { class: "mnb-row" },
        h("span", { class: "mnb-muted" }, "FLOP formula"),
        h("span", { class: "mnb-grow" }),
        this.copy,
      ),
      this.sum,
      this.status,
      this.letters,
    );
    this.destroy = together(
      store.kernel.receive(
        "formula",
        (_, found) => this.take(found),
        (why, { block, version }) => this.fail(block, version, why),
      ),
      store.kernel.watch(() => this.paint()),
    );
  }

  /** Show the formula of a block, or nothing for null. It is requested once per version, when the costs are ready. */
  show(path: string | null): void {
    this.root.hidden = path === null;
    this.path = path ?? "";
    if (path === null) return;
    const { version, cost } = this.store.snapshot;
    const key = JSON.stringify([path, version]);
    if (cost !== null && !cost.stale && this.requested !== key) {
      this.requested = key;
      this.store.kernel.afterRest("formula", "request_formula", { block: path }, (reply) => {
        const why = errorOf(reply);
        if (why !== null) this.fail(path, version, why);
        else if (!reply.ok && this.requested === key) this.requested = ""; // no reply: request it again
      });
    }
    this.paint();
  }

  private fail(block: string, version: number, why: string): void {
    this.take({
      block,
      version,
      short: "",
      whole: "",
      terms: [],
      legend: [],
      left: 0,
      left_flops: 0,
      why,
      text: why,
      hasFailed: true,
    });
  }

  private take(found: BlockFormula & { hasFailed?: boolean }): void {
    if (found.block !== this.path) return;
    this.found = found;
    this.paint();
  }

  private paint(): void {
    if (this.root.hidden) return;
    const { snapshot, kernel } = this.store;
    const found = this.found?.block === this.path ? this.found : null;
    const isOld = found !== null && found.version !== snapshot.version;
    attr(this.root, "data-mnb-state", found?.hasFailed ? "failed" : isOld ? "stale" : found ? "ready" : "loading");
    this.root.classList.toggle("mnb-count-old", isOld);
    text(this.sum, found?.short ?? "");
    attr(this.sum, "title", found?.whole ?? null);
    this.sum.hidden = !found?.short;
    text(this.status, this.messageFor(found, isOld, kernel.isGone));
    this.status.hidden = this.status.textContent === "";
    this.copy.hidden = !found || found.hasFailed === true;
    this.letters.hidden = !found?.terms.length;
    if (!found) return;
    const count = found.terms.length + found.left;
    text(this.summary, count === 1 ? "Terms" : `Terms (${count})`);
    text(this.whole, found.whole);
    this.whole.hidden = found.whole === found.short;
    const rest = found.left
      ? [h("li", { class: "mnb-muted" }, `and ${found.left} more · ${si(found.left_flops, "FLOP")}`)]
      : [];
    this.terms.replaceChildren(...found.terms.map(termOf), ...rest);
    text(this.legend, found.legend.map(([letter, meaning]) => `${letter}: ${meaning}`).join(" · "));
    this.legend.hidden = !found.legend.length;
  }

  private messageFor(found: BlockFormula | null, isOld: boolean, isLost: boolean): string {
    const { problems } = this.store.snapshot;
    if ((isOld || !found) && problems.length) return "Costs return once the errors are fixed.";
    if (found) return isOld ? "" : found.why;
    return isLost ? "Not connected to the kernel, so the formula cannot be loaded." : "Computing…";
  }
}

function termOf({ formula, letters, times, role, opcodes, flops, why }: Term): HTMLElement {
  const count = times === 1 || !formula ? "" : `${times === null ? "?" : times.toLocaleString("en-US")} × `;
  const values = letters.map(
    ([letter, value]) => `${letter} = ${typeof value === "number" ? value.toLocaleString("en-US") : value}`,
  );
  const sum = flops === null ? `unknown: ${why}` : si(flops, "FLOP");
  return h(
    "li",
    { class: flops === null ? "mnb-term mnb-term-unknown" : "mnb-term" },
    formula ? h("code", {}, count + formula) : null,
    values.length ? h("span", { class: "mnb-term-letters" }, values.join(", ")) : null,
    h(
      "span",
      { class: "mnb-term-sum", title: flops === null ? null : exact(flops, "FLOP") },
      `${sum} · ${[...opcodes, ...(role ? [role] : [])].join(", ")}`,
    ),
  );
}

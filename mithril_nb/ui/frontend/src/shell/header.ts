/** The header: model name, program, shapes, undo, redo, layout presets and search. */

import { together } from "../dom/calls";
import { attr, choose, h, iconButton, keyed, text } from "../dom/dom";
import type { Search } from "../search/search";
import type { Store } from "../store/store";

/** Parse "32, 64" or "batch, 64" as a shape; the kernel validates it. */
export function readShape(value: string): (number | string)[] {
  const parts = value
    .replace(/[()[\]]/g, " ")
    .split(/[\s,×]+/)
    .filter(Boolean);
  return parts.map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

/** Create the right end of a header as one element, so that in narrow widgets the search shrinks before it wraps. */
export function headerEnd(search: Search, showHelp: () => void, ...buttons: (HTMLElement | null)[]): HTMLElement {
  const help = h(
    "button",
    {
      type: "button",
      class: "mnb-button mnb-icon-button",
      "aria-label": "Keyboard shortcuts",
      title: "Keyboard shortcuts (?)",
      "data-mnb-action": "help",
      onclick: showHelp,
    },
    "?",
  );
  return h("span", { class: "mnb-header-end" }, search.root, ...buttons, help);
}

export class Header {
  readonly root: HTMLElement;
  private readonly name = h("b", { class: "mnb-model-name" });
  private readonly backend = h("span", { class: "mnb-backend" });
  private readonly program = h("select", { class: "mnb-input", "aria-label": "Program", "data-mnb-action": "program" });
  private readonly output = h("select", {
    class: "mnb-input",
    "aria-label": "Output to train on",
    "data-mnb-action": "output",
  });
  private readonly outputLabel = h(
    "label",
    { class: "mnb-labelled", hidden: true },
    h("span", {}, "output"),
    this.output,
  );
  private readonly note = h("span", { class: "mnb-badge mnb-program-note", role: "status", hidden: true });
  private readonly shapes = h("span", { class: "mnb-shapes" });
  private readonly undo: HTMLButtonElement;
  private readonly redo: HTMLButtonElement;
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    readonly search: Search,
    showHelp: () => void,
    presets: HTMLElement,
    ...buttons: (HTMLElement | null)[]
  ) {
    this.undo = iconButton("undo", "Undo", "undo", () => store.command("undo"));
    this.redo = iconButton("redo", "Redo", "redo", () => store.command("redo"));
    this.program.addEventListener("change", () => store.command("set_program", { program: this.program.value }));
    this.output.addEventListener(
      "change",
      () => this.output.value && store.command("set_output", { output: this.output.value }),
    );
    this.root = h(
      "div",
      { class: "mnb-header", role: "group", "aria-label": "Model, program and shapes" },
      this.name,
      this.backend,
      h("label", { class: "mnb-labelled" }, h("span", {}, "program"), this.program),
      this.outputLabel,
      this.shapes,
      h("span", { class: "mnb-row" }, this.undo, this.redo),
      this.note,
      presets,
      headerEnd(this.search, showHelp, ...buttons),
    );
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      () => this.search.destroy(),
    );
    this.update();
  }

  private update(): void {
    const { snapshot } = this.store;
    text(this.name, snapshot.name);
    attr(this.name, "title", snapshot.name);
    text(this.backend, snapshot.backend);
    choose(this.program, snapshot.programs, snapshot.program);
    const { outputs = [], output = "", program_note: note = "" } = snapshot;
    this.outputLabel.hidden = outputs.length < 2;
    choose(this.output, output ? outputs : ["", ...outputs], output);
    this.note.hidden = note === "";
    text(this.note, note && `Program ${snapshot.program}: ${note}.`);
    keyed(
      this.shapes,
      Object.entries(snapshot.shapes),
      ([port]) => port,
      ([port]) => this.shapeField(port),
      (element: HTMLElement, [, shape]) => {
        const input = element.querySelector("input")!;
        const value = shape.join(", ");
        const typing =
          (input.getRootNode() as Document | ShadowRoot).activeElement === input && input.dataset["dirty"] === "1";
        if (!typing && input.dataset["dirty"] !== "sent") {
          if (input.value !== value) input.value = value;
          this.paintProblem(input, "");
        }
        attr(input, "placeholder", value ? null : "32, 64");
        input.style.width = `${(input.value || input.placeholder).length + 3}ch`;
      },
    );
    attr(this.undo, "aria-disabled", snapshot.can_undo ? null : "true");
    attr(this.redo, "aria-disabled", snapshot.can_redo ? null : "true");
    const label = snapshot.can_undo && snapshot.undo_label ? `Undo: ${snapshot.undo_label} (Ctrl+Z)` : "Undo (Ctrl+Z)";
    attr(this.undo, "title", label);
    attr(this.undo, "aria-label", label);
    attr(
      this.redo,
      "title",
      snapshot.can_redo && snapshot.redo_label ? `Redo: ${snapshot.redo_label} (Ctrl+Shift+Z)` : "Redo (Ctrl+Shift+Z)",
    );
  }

  private shapeField(port: string): HTMLElement {
    const input = h("input", {
      type: "text",
      class: "mnb-input mnb-shape",
      "aria-label": `Shape of ${port}`,
      "data-mnb-shape": port,
      autocomplete: "off",
      spellcheck: "false",
    });
    input.addEventListener("input", () => (input.dataset["dirty"] = "1"));
    const commit = (): void => {
      if (input.dataset["dirty"] !== "1") return;
      const shape = readShape(input.value);
      if (!shape.length) return this.paintProblem(input, "Enter at least one size, such as 32, 64.");
      input.dataset["dirty"] = "sent";
      void this.store.kernel.send("set_shape", { name: port, shape }).then(({ ok, error }) => {
        // The user kept typing, so the field is newer than the reply.
        if (input.dataset["dirty"] !== "sent") return;
        input.dataset["dirty"] = ok ? "" : "1";
        this.paintProblem(
          input,
          error ? [error.summary, ...error.facts.map(([name, fact]) => `${name}: ${fact}`)].join("\n") : "",
        );
        if (ok) this.update();
      });
    };
    input.addEventListener("change", commit);
    input.addEventListener("keydown", (event) => event.key === "Enter" && commit());
    return h(
      "label",
      { class: "mnb-labelled" },
      h("span", { title: port }, port),
      input,
      h("small", { class: "mnb-field-problem", role: "alert", hidden: true }),
    );
  }

  private paintProblem(input: HTMLInputElement, reason: string): void {
    attr(input, "aria-invalid", reason ? "true" : null);
    const message = input.parentElement!.querySelector<HTMLElement>(".mnb-field-problem")!;
    message.hidden = reason === "";
    text(message, reason.split("\n")[0]!);
    attr(input, "title", reason || "Axis sizes as numbers or names, such as batch, 64");
  }
}

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession } from "../dev/fake-model";
import { createFullScreen, fullButton, type FullScreen } from "../src/controls/full-screen";
import { createSplitter, type Splitter } from "../src/controls/split";
import { Memory } from "../src/dom/memory";
import { mountExplorer } from "../src/explorer";
import { mountWorkbench } from "../src/workbench";
import { finderIn } from "./find";
import { shortData } from "./short-data";

const data = shortData(70);
const KEY = "mithril_nb.layouts";

describe("the memory of layouts", () => {
  test("keeps values by widget, and returns only values of the right type", () => {
    const memory = new Memory("a");
    memory.set("preset", "read");
    memory.set("height", 640);
    expect(new Memory("a").get("preset", "build")).toBe("read");
    expect(new Memory("a").get("height", 0)).toBe(640);
    expect(new Memory("a").get("height", "none")).toBe("none");
    expect(new Memory("b").get("preset", "build")).toBe("build");
  });

  test("keeps what another widget has written since", () => {
    const [a, b] = [new Memory("a"), new Memory("b")];
    a.set("height", 500);
    b.set("height", 600);
    a.set("tab", "cost");
    expect([new Memory("a").get("height", 0), new Memory("b").get("height", 0)]).toEqual([500, 600]);
  });

  test("drops the layouts of widgets that changed longest ago", () => {
    for (let i = 0; i < 70; i++) new Memory(`widget ${i}`).set("height", 500);
    new Memory("widget 10").set("height", 501);
    expect(new Memory("widget 0").get("height", 0)).toBe(0);
    expect(new Memory("widget 10").get("height", 0)).toBe(501);
    expect(Object.keys(JSON.parse(localStorage.getItem(KEY)!))).toHaveLength(60);
  });

  test.each(["null", "[1]", "{", '{"a": null}', '{"a": 3}', '{"a": {"height": {}}}', '"__proto__"'])(
    "ignores %s in the storage",
    (text) => {
      localStorage.setItem(KEY, text);
      const memory = new Memory("a");
      expect(memory.get("height", 720)).toBe(720);
      memory.set("height", 500);
      expect(new Memory("a").get("height", 720)).toBe(500);
    },
  );

  test("works for a widget named like a property of every object", () => {
    expect(new Memory("constructor").get("name", "none")).toBe("none");
  });

  test("works without a storage", () => {
    const blocked = vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
      throw new DOMException("blocked", "SecurityError");
    });
    const memory = new Memory("a");
    memory.set("height", 500);
    expect(memory.get("height", 720)).toBe(500);
    blocked.mockRestore();
  });
});

describe("a divider", () => {
  const press = (splitter: Splitter, key: string): boolean =>
    splitter.root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  test("moves by keys within its bounds and shows its value", () => {
    let share = 0.5;
    const splitter = createSplitter({
      axis: "x",
      label: "Size of the graph",
      min: 0.2,
      max: 0.53,
      length: () => 100,
      get: () => share,
      set: (size) => (share = size),
    });
    expect(splitter.root.getAttribute("aria-orientation")).toBe("vertical");
    for (const [key, value] of [
      ["ArrowRight", 52],
      ["ArrowRight", 53],
      ["Home", 20],
      ["ArrowLeft", 20],
      ["End", 53],
      ["ArrowUp", 51],
    ] as const) {
      expect(press(splitter, key), key).toBe(false);
      expect(Number(splitter.root.getAttribute("aria-valuenow")), key).toBe(value);
    }
    expect(press(splitter, "x")).toBe(true);
    splitter.turn("y");
    expect(splitter.root.getAttribute("aria-orientation")).toBe("horizontal");
  });
});

describe("full screen", () => {
  let root: HTMLElement;
  let screen: FullScreen;
  const find = finderIn(() => root);
  beforeEach(() => {
    root = document.createElement("div");
    root.innerHTML =
      '<p id="head"></p><main><section id="a" data-mnb-full="A"><p id="in-a"></p></section><div id="around"><i ' +
      'id="beside"></i><section id="b" data-mnb-full="B"></section></div></main>';
    for (const part of ["a", "b"]) find(`#${part}`).append(fullButton(part.toUpperCase(), part));
    find("#head").append(fullButton("all", "all"));
    document.body.append(root);
    screen = createFullScreen(root, find("main"));
  });
  afterEach(() => {
    screen.destroy();
    root.remove();
  });
  const away = (): string[] => [...root.querySelectorAll("[data-mnb-away]")].map((one) => one.id);

  test("shows one part, keeps the header, and leaves", () => {
    const button = find<HTMLButtonElement>('[data-mnb-action="full.b"]');
    expect(button.title).toBe("Show B in full screen (E)");
    button.focus();
    button.click();
    expect(away()).toEqual(["a", "beside"]);
    expect([button.title, button.getAttribute("aria-pressed"), document.activeElement]).toEqual([
      "Leave full screen (Esc)",
      "true",
      button,
    ]);
    button.click();
    expect(away()).toEqual([]);
    expect([button.getAttribute("aria-pressed"), document.activeElement, root.hasAttribute("data-mnb-screen")]).toEqual(
      ["false", button, false],
    );
    expect(screen.leave()).toBe(false);
  });

  test("changes from one part to another, and to the whole widget", () => {
    screen.toggle(find("#in-a"));
    expect(away()).toEqual(["around"]);
    screen.toggle(find("#b"));
    expect(away()).toEqual(["a", "beside"]);
    screen.toggle(root);
    expect([away(), root.hasAttribute("data-mnb-screen")]).toEqual([[], true]);
    expect(screen.leave()).toBe(true);
  });

  test("leaves when the browser does", () => {
    let element: Element | null = null;
    Object.defineProperty(document, "fullscreenElement", { configurable: true, get: () => element });
    root.requestFullscreen = () => Promise.resolve(void (element = root));
    document.exitFullscreen = () => Promise.resolve(void (element = null));
    screen.toggle(find("#in-a"));
    document.dispatchEvent(new Event("fullscreenchange"));
    expect(element).toBe(root);
    element = null;
    document.dispatchEvent(new Event("fullscreenchange"));
    expect([away(), root.hasAttribute("data-mnb-screen")]).toEqual([[], false]);
    delete (document as any).fullscreenElement;
  });
});

describe("the layout of the workbench", () => {
  let session: FakeSession;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const width = (px: number): void => {
    Object.defineProperty(HTMLElement.prototype, "clientWidth", { configurable: true, get: () => px });
  };
  const mount = (more: Record<string, unknown> = {}, manager?: unknown): void => {
    session = new FakeSession(data);
    session.widget_manager = manager;
    Object.assign(session.traits, more);
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountWorkbench({ model: session, el });
  };
  const unmount = (): void => {
    cleanup();
    el.remove();
  };
  const key = (name: string, at: string = ".mnb-board"): void => {
    find(at).dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  };
  const select = (): void => {
    for (const type of ["pointerdown", "pointerup", "click"])
      find('[data-mnb-node="linear_0"]').dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0 }));
  };
  const visible = (): string[] =>
    [".mnb-graph-area", ".mnb-panes", ".mnb-tabs"].filter((part) => !find(part).closest("[hidden]"));
  const checked = (): string | undefined =>
    find('[data-mnb-action^="layout."][aria-checked="true"]').dataset["mnbAction"];
  const tab = (): string | undefined => find('[role="tab"][aria-selected="true"]').dataset["mnbTab"];
  afterEach(() => {
    unmount();
    delete (HTMLElement.prototype as any).clientWidth;
  });

  test("starts with the graph and the stages in a tab, and has a preset for each digit", () => {
    mount();
    expect([checked(), tab(), visible()]).toEqual([
      "layout.build",
      "stages",
      [".mnb-graph-area", ".mnb-panes", ".mnb-tabs"],
    ]);
    const shown = [..."12345"].map((digit) => {
      key(digit);
      return [checked(), tab(), find(".mnb-graph-area").hidden];
    });
    expect(shown).toEqual([
      ["layout.build", "stages", false],
      ["layout.read", "stages", true],
      ["layout.cost", "cost", false],
      ["layout.train", "train", true],
      ["layout.lecture", "stages", false],
    ]);
  });

  test("types digits in a field without changing the preset", () => {
    mount();
    key("2", ".mnb-palette-search");
    expect(checked()).toBe("layout.build");
  });

  test("in wide widgets, shows stages or tabs beside the graph, and both below it in Build", () => {
    width(2400);
    mount();
    expect([tab(), find('[data-mnb-tab="stages"]').hidden]).toEqual(["stages", false]);
    const shown = [..."12345"].map((digit) => (key(digit), visible()));
    expect(shown).toEqual([
      [".mnb-graph-area", ".mnb-panes", ".mnb-tabs"],
      [".mnb-panes"],
      [".mnb-graph-area", ".mnb-tabs"],
      [".mnb-tabs"],
      [".mnb-graph-area", ".mnb-panes"],
    ]);
  });

  test("keeps preset, tab and scroll positions when the widget gets wide and narrow again", () => {
    const fits: (() => void)[] = [];
    vi.stubGlobal(
      "ResizeObserver",
      class {
        constructor(fit: () => void) {
          fits.push(fit);
        }
        observe(): void {}
        unobserve(): void {}
        disconnect(): void {}
      },
    );
    const resize = (px: number): void => {
      width(px);
      for (const fit of fits) fit();
    };
    width(1000);
    mount();
    const scroller = find('[data-mnb-pane="jaxpr"] .cm-scroller');
    scroller.scrollTop = 30;
    for (const preset of ["2", "5"]) {
      key(preset);
      const before = [checked(), tab()];
      resize(2400);
      expect([
        checked(),
        find(".mnb-rest").contains(scroller),
        find('[data-mnb-panel="stages"]').contains(scroller),
      ]).toEqual([before[0], true, false]);
      resize(1000);
      expect([checked(), tab(), scroller.scrollTop]).toEqual([...before, 30]);
    }
    resize(2400);
    find('[data-mnb-tab="passes"]').click();
    resize(1000);
    expect(tab()).toBe("passes");
    find('[data-mnb-tab="passes"]').dispatchEvent(new CustomEvent("mnb-full", { bubbles: true }));
    resize(2400);
    expect(
      [tab(), find('[data-mnb-panel="stages"]').contains(scroller)],
      "a part in full screen keeps its place",
    ).toEqual(["passes", true]);
    vi.unstubAllGlobals();
  });

  test("in narrow widgets, shows the stages below each other", () => {
    width(690);
    mount();
    expect(find(".mnb-panes-row").dataset["mnbDirection"]).toBe("y");
    expect(find(".mnb-panes-row > .mnb-split").getAttribute("aria-orientation")).toBe("horizontal");
  });

  test("restores preset, tab, sizes and height", () => {
    mount();
    key("3");
    find('[data-mnb-tab="passes"]').click();
    key("ArrowDown", '[aria-label="Size of the graph"]');
    key("ArrowRight", '[aria-label="Size of jaxpr"]');
    key("ArrowDown", '[aria-label="Height of the widget"]');
    const sizes = (): (string | undefined)[] => [
      find(".mnb-main").style.getPropertyValue("--mnb-graph"),
      find('[data-mnb-pane="jaxpr"]').style.flexGrow,
      find(".mnb-root").style.getPropertyValue("--mnb-height"),
    ];
    expect(sizes()).toEqual(["42.00%", "1.04", "400px"]); // jsdom has no layout, so the height starts at 0
    unmount();
    mount();
    expect([checked(), tab(), sizes()]).toEqual(["layout.cost", "passes", ["42.00%", "1.04", "400px"]]);
    // Each preset has its own sizes.
    key("1");
    expect(sizes()[0]).toBe("60.00%");
  });

  test("keeps the layouts of two cells apart", () => {
    mount();
    key("2");
    unmount();
    const { snapshot } = data;
    mount({
      snapshot: {
        ...snapshot,
        autosave: { path: "notebooks/.mithril_nb/b-1.json", edits: 0, offer: null, problem: "" },
      },
    });
    expect(checked()).toBe("layout.build");
  });

  test("moves the focus out of a part that a preset hides", () => {
    mount();
    find('[data-mnb-node="gelu_0"]').focus();
    key("4", '[data-mnb-node="gelu_0"]');
    expect((document.activeElement as HTMLElement).dataset["mnbTab"]).toBe("train");
    key("1");
    expect((document.activeElement as HTMLElement).dataset["mnbTab"]).toBe("train");
    find('[data-mnb-node="gelu_0"]').focus();
    key("2", '[data-mnb-node="gelu_0"]');
    expect(document.activeElement!.closest("[data-mnb-pane]")).not.toBeNull();
  });

  test("shows the inspector beside the graph, and hides it on request", () => {
    mount();
    expect(find(".mnb-inspector").hidden).toBe(false);
    find('[data-mnb-action="inspector.hide"]').focus();
    find('[data-mnb-action="inspector.hide"]').click();
    expect([find(".mnb-inspector").hidden, (document.activeElement as HTMLElement).dataset["mnbAction"]]).toEqual([
      true,
      "inspector.show",
    ]);
    key("i");
    expect([find(".mnb-inspector").hidden, (document.activeElement as HTMLElement).dataset["mnbAction"]]).toEqual([
      false,
      "inspector.hide",
    ]);
    key("5");
    expect([find(".mnb-inspector").hidden, find('[data-mnb-action="inspector.show"]').hidden]).toEqual([true, true]);
  });

  test("opens the list of the palette with the focus", () => {
    mount();
    const input = find(".mnb-palette-search");
    const isOpen = (): unknown[] => [
      find(".mnb-palette").hasAttribute("data-mnb-open"),
      input.getAttribute("aria-expanded"),
    ];
    expect(isOpen()).toEqual([false, "false"]);
    input.focus();
    expect(isOpen()).toEqual([true, "true"]);
    key("Escape", ".mnb-palette-search");
    expect(isOpen()).toEqual([false, "false"]);
    key("ArrowDown", ".mnb-palette-search");
    expect(isOpen()).toEqual([true, "true"]);
    key("Enter", ".mnb-palette-search"); // adds a block
    expect(isOpen()).toEqual([false, "false"]);
    input.click();
    expect(isOpen()).toEqual([true, "true"]);
    input.blur();
    expect(isOpen()).toEqual([false, "false"]);
  });

  test("closes the stages of Build while the compiler has nothing to show", () => {
    const stage = (state: string, message: string) => ({ ...data.snapshot.stages["hlo"]!, state, message });
    const states = (state: string, message: string) =>
      Object.fromEntries(Object.keys(data.snapshot.stages).map((name) => [name, stage(state, message)]));
    const isClosed = () => find(".mnb-root").hasAttribute("data-mnb-closed");
    mount({ snapshot: { ...data.snapshot, stages: states("empty", "there is no block yet") } as never });
    expect([isClosed(), find('[aria-label="Size of the graph"]').hidden]).toEqual([true, true]);
    find('[data-mnb-tab="source"]').click();
    expect(isClosed()).toBe(false);
    find('[data-mnb-tab="stages"]').click();
    key("5");
    expect(isClosed()).toBe(false);
    key("1");
    expect(isClosed()).toBe(true);
    session.change({ stages: states("loading", "") as never });
    expect(isClosed()).toBe(false);
  });

  test("docks the palette and lists recent kinds first", () => {
    width(1000);
    mount();
    expect(find(".mnb-root").hasAttribute("data-mnb-docked")).toBe(true);
    const first = () => find(".mnb-palette-item").dataset["mnbPalette"];
    expect(first()).toBe("Linear");
    const input = find<HTMLInputElement>(".mnb-palette-search");
    input.focus();
    input.value = "softplus";
    input.dispatchEvent(new Event("input", { bubbles: true }));
    key("Enter", ".mnb-palette-search");
    expect([session.sent.at(-1)!.args["kind"], first()], "no jump below the pointer").toEqual(["Softplus", "Linear"]);
    input.blur();
    expect(first()).toBe("Softplus");
    unmount();
    width(800);
    mount();
    expect([find(".mnb-root").hasAttribute("data-mnb-docked"), first()]).toEqual([false, "Softplus"]);
  });

  test.each([..."245"])("the key n in preset %s shows the palette, which is hidden there", (digit) => {
    mount();
    key(digit);
    key("n");
    expect([document.activeElement, checked(), find(".mnb-graph-area").hidden]).toEqual([
      find(".mnb-palette-search"),
      "layout.build",
      false,
    ]);
  });

  test("the key n keeps a preset with a palette, and leaves the full screen of another part", () => {
    mount();
    key("3");
    key("e", '[data-mnb-pane="stablehlo"] .cm-content');
    key("n");
    expect([document.activeElement, checked(), el.querySelectorAll("[data-mnb-away]").length]).toEqual([
      find(".mnb-palette-search"),
      "layout.cost",
      0,
    ]);
    key("e", ".mnb-canvas");
    key("n");
    expect(find(".mnb-rest").hasAttribute("data-mnb-away"), "the graph stays in full screen").toBe(true);
  });

  test("reveals a tab or the stages that another part opens", () => {
    width(2400);
    mount();
    key("2");
    find('[data-mnb-tab="problems"]').click();
    expect(checked()).toBe("layout.build");
    key("3");
    key("ArrowDown", ".mnb-root");
    find(".mnb-root").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", altKey: true, bubbles: true }));
    expect(visible()).toContain(".mnb-panes");
  });

  test(
    "shows the part with the focus in full screen by a key, and leaves by Esc before it clears the " + "selection",
    () => {
      mount();
      select();
      key("e", '[data-mnb-pane="stablehlo"] .cm-content');
      expect(find('[data-mnb-pane="jaxpr"]').hasAttribute("data-mnb-away")).toBe(true);
      expect(find(".mnb-graph-area").hasAttribute("data-mnb-away")).toBe(true);
      key("Escape");
      expect([
        el.querySelectorAll("[data-mnb-away]").length,
        find('[data-mnb-node="linear_0"]').getAttribute("data-mnb-linked"),
      ]).toEqual([0, "pinned"]);
      key("Escape");
      expect(find('[data-mnb-node="linear_0"]').getAttribute("data-mnb-linked")).toBeNull();
    },
  );

  test("opens a second view in a tab of JupyterLab, and only there", async () => {
    mount({ own_id: "abc" });
    expect(el.querySelector('[data-mnb-action="tab.open"]')).toBeNull();
    unmount();
    class Widget {
      static attach = vi.fn();
      readonly node = document.createElement("div");
      readonly title = { label: "", caption: "", closable: false };
      readonly slots: (() => void)[] = [];
      readonly disposed = { connect: (slot: () => void): unknown => this.slots.push(slot) };
      addClass = (name: string): void => this.node.classList.add(name);
      dispose = vi.fn();
    }
    class View extends Widget {}
    const view = new View();
    const added: any[] = [];
    const manager = {
      get_model: (id: string) => Promise.resolve(id),
      create_view: (model: string) => Promise.resolve((added.push(model), { luminoWidget: view })),
      context: { addSibling: (page: Widget) => added.push(page) },
    };
    mount({ own_id: "abc" }, manager);
    find('[data-mnb-action="tab.open"]').click();
    await vi.waitFor(() => expect(Widget.attach).toHaveBeenCalled());
    const [id, page] = added;
    expect([id, page.title, page.node.className]).toEqual([
      "abc",
      { label: session.snapshot.name, caption: session.snapshot.name, closable: true },
      "mnb-filled",
    ]);
    expect(Widget.attach).toHaveBeenCalledWith(view, page.node);
    page.slots[0]();
    expect(view.dispose).toHaveBeenCalled();
  });
});

test("the explorer has full screen and a height, too", () => {
  const session = new FakeSession(data);
  const el = document.createElement("div");
  document.body.append(el);
  const cleanup = mountExplorer({ model: session, el });
  const find = finderIn(() => el);
  find('[aria-label="Height of the widget"]').dispatchEvent(
    new KeyboardEvent("keydown", { key: "Home", bubbles: true }),
  );
  expect(find(".mnb-root").style.getPropertyValue("--mnb-height")).toBe("400px");
  find('[data-mnb-pane="jaxpr"] [data-mnb-action="full.jaxpr"]').click();
  expect(find('[data-mnb-pane="stablehlo"]').hasAttribute("data-mnb-away")).toBe(true);
  cleanup();
  el.remove();
});

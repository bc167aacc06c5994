/** Models in links: the page shows them, and rejects everything that is not one. */

import { afterEach, beforeAll, expect, test, vi } from "vitest";
import { NestedGraph } from "../src/layout/data";
import { layout } from "../src/layout/layout";
import { readLink, showShared } from "../src/page/shared";
import { MARK, followAddress } from "../src/store/address";
import type { Store } from "../src/store/store";
import { finderIn } from "./find";

/** Returned by `share_link` in Python for a Linear and an MLP. */
const LINK =
  "#model=7VbbjtowEP2Vys_ebhJu23zDVqr6ihAyiwELE0dOUrpF_HvHY3wJSaDdrqo-VLnZcz3jGY9zIhulD6wmOTmIeqeFXBarj1IUe0LJN64" +
  "roQqSp5Qc1JpLkp965S0zUsgoKdiBgxRQt5qVO6NagFhF8vnJMcEPZ3qZgNBeFGugPCMF5qyutVg1tVE4kbU48MKaHlHSVHy5Egw4tW44JaIom" +
  "3pZiR9gs2ikPJ-pd3GQZWz_8_MXmKjyLjL2ytvADOHXVN8Q1Pj3gtJcNrGDrzAn5wUlfL1FMHMDES3ANwJkSQuK_CMX292VwIV2kUA8LT5SDDe" +
  "iqaa2jjysixsAJNmKS4voYiw24hC2kHlYEZxFHL3NTfq3cjP5n5t7uRmMzu-inuCSlkA3uDY_BOdJPrZQED1u0pZA102bb910FycJq5OgtlP1V" +
  "u6sWRIvWhIx0piRdpezL5muqfXk0uyUsAFqUUuse7UVL0x-sAxQrJaXhm4LWiuJ7sBStWOlG4u10TajlfpuN8aevwLFes57qthBw-9jSFZr_ni" +
  "t4Bm-TGNyej0f0k-Dvl2r_LJkC3cezckNzAFtxPQWA5Y-bnBk931w5DuMPXtcs_JkbBDD9GD4CFZnGU1H05vPUwKykP35KKGTrP8eGRksjqWxm" +
  "tAEVDN83Nh8jVTJNC_gvJ8_pNTeoA5XRqdwPaQLrKatVg103_mGyYpT-8bSwleHGhPwbSA3Jj8z4751zRBEbSIi_2atmeRgtnHHhkbQN4pae6f" +
  "VDnH-XNsV0cLVk-0tXYF3HkI3o2Qj1RF7R6Ua_WKSPMIKGtMJ1tCUzugT1FOGlZVhZaVQBpmpUaa33FTfmI5RYQTCM1SYUmvGmjBqKf1kA4y3X" +
  "3tZoibqB2-VTKKDyouEpu5OiGEzYWuLola3QF9p0PcTHAzaCVyDPZv_LF7wtT1sfgI";
const find = finderIn(() => document.body);

beforeAll(() => {
  globalThis.ResizeObserver ??= class {
    observe(): void {}
    unobserve(): void {}
    disconnect(): void {}
  };
});
afterEach(() => document.body.replaceChildren());

async function linkTo(data: unknown): Promise<string> {
  const stream = new Blob([typeof data === "string" ? data : JSON.stringify(data)])
    .stream()
    .pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return (
    MARK +
    btoa(String.fromCharCode(...bytes))
      .replaceAll("+", "-")
      .replaceAll("/", "_")
      .replaceAll("=", "")
  );
}

test("shows a link from Python, and offers the model and the link", async () => {
  document.body.innerHTML = "<main><p>the program of the page</p></main>";
  const shared = await readLink(LINK);
  showShared(find("main"), shared);
  expect(find(".name").textContent).toBe("model");
  expect(document.body.textContent).not.toContain("the program of the page");
  expect([...document.querySelectorAll("[data-mnb-node]")].map((node) => node.getAttribute("data-mnb-node"))).toEqual([
    "input:input",
    "linear_0",
    "mlp_0",
    "output:output",
  ]);
  const actions = [...document.querySelectorAll<HTMLElement>(".mnb-action")];
  expect(actions.map((action) => action.textContent)).toEqual([
    "PNG, twice the size",
    "SVG",
    "JSON: model",
    "Copy link",
    "PDF or paper: print the page",
  ]);
  const copied: string[] = [];
  Object.defineProperty(navigator, "clipboard", {
    configurable: true,
    value: { writeText: async (text: string) => void copied.push(text) },
  });
  actions[3]!.click();
  await vi.waitFor(() => expect(find('[data-mnb-action="graph.export"]').textContent).toBe("Copied"));
  expect(copied).toEqual([location.href]);
});

test("names in a link are data", async () => {
  const { model, graph } = await readLink(LINK);
  const hostile = "<img src=x onerror=alert(1)>\u202e</script>";
  const boxes = {
    ...graph.boxes,
    name: graph.boxes.name!.map(() => hostile),
    kind: graph.boxes.kind!.map(() => hostile),
  };
  const link = await linkTo({
    format: "mithril_nb.link",
    version: 1,
    model: { ...model, name: hostile },
    graph: { ...graph, boxes, opened: ["mlp_0"] },
  });
  document.body.innerHTML = "<main></main>";
  showShared(find("main"), await readLink(link));
  expect(document.querySelectorAll("img, script").length).toBe(0);
  expect(find(".name").textContent).toBe(hostile);
  expect(document.title).toBe(hostile);
});

const whole = async (): Promise<any> => ({ format: "mithril_nb.link", version: 1, ...(await readLink(LINK)) });
const broken: [string, (data: any) => unknown][] = [
  ["made by another version", (data) => ({ ...data, version: 2 })],
  ["the data is missing", () => []],
  ["the model is missing", ({ model: _, ...data }) => data],
  ["no name", (data) => ({ ...data, model: { name: 3 } })],
  ["the graph is missing", (data) => ({ ...data, graph: null })],
  ["graph is broken", (data) => ({ ...data, graph: { ...data.graph, title: 3 } })],
  [
    "graph is broken",
    (data) => ({ ...data, graph: { ...data.graph, boxes: { ...data.graph.boxes, onclick: ["a"] } } }),
  ],
  [
    "graph is broken",
    (data) => ({
      ...data,
      graph: { ...data.graph, boxes: { ...data.graph.boxes, w: data.graph.boxes.w.map(() => 1e9) } },
    }),
  ],
  ["graph is broken", (data) => ({ ...data, graph: { ...data.graph, boxes: { ...data.graph.boxes, w: [1] } } })],
  [
    "graph is broken",
    (data) => ({
      ...data,
      graph: {
        ...data.graph,
        boxes: { ...data.graph.boxes, parent: data.graph.boxes.key.map((_: string, at: number) => at) },
      },
    }),
  ],
  [
    "graph is broken",
    (data) => ({
      ...data,
      graph: { ...data.graph, boxes: { ...data.graph.boxes, key: data.graph.boxes.key.map(() => "a") } },
    }),
  ],
  [
    "graph is broken",
    (data) => ({
      ...data,
      graph: { ...data.graph, flows: { ...data.graph.flows, source: data.graph.flows.source.map(() => 99) } },
    }),
  ],
  ["graph is broken", (data) => ({ ...data, graph: { ...data.graph, idle: [["a"]] } })],
];

test.each(broken)("rejects data that is wrong: %s", async (why, change) => {
  await expect(readLink(await linkTo(change(await whole())))).rejects.toThrow(why);
});

test("rejects links that are cut, damaged, too long, or grow too much", async () => {
  for (const end of [MARK.length, MARK.length + 1, LINK.length >> 1, LINK.length - 2])
    await expect(readLink(LINK.slice(0, end))).rejects.toThrow("damaged, or a part is missing");
  await expect(readLink(`${MARK}<b>`)).rejects.toThrow("damaged");
  await expect(readLink(await linkTo("[".repeat(500_000)))).rejects.toThrow("damaged");
  await expect(readLink(MARK + "A".repeat(8_000))).rejects.toThrow("it has 8,007 characters, and the limit is 8,000");
  await expect(readLink(await linkTo(" ".repeat(3_000_000)))).rejects.toThrow("more than 2,000,000 bytes");
});

test("the layout ends for every valid graph, also with circles", async () => {
  let seed = 7;
  const random = (end: number): number => (seed = (seed * 16807) % 2147483647) % end;
  const { graph } = await readLink(LINK);
  for (let round = 0; round < 60; round++) {
    const count = 1 + random(12);
    const key = Array.from({ length: count }, (_, at) => `b${at}`);
    const parent = key.map((_, at) => random(at + 1) - 1);
    const flows = Array.from({ length: random(30) }, () => [random(count), random(count)] as const);
    const boxes = {
      key,
      name: key,
      kind: key,
      w: key.map(() => random(300)),
      h: key.map(() => random(90)),
      parent,
      is_group: key.map(() => random(2) === 1),
      path: key,
    };
    const made = {
      ...graph,
      idle: [
        ["b0", "x"],
        ["nowhere", "y"],
      ],
      boxes,
      flows: {
        source: flows.map(([from]) => from),
        target: flows.map(([, to]) => to),
        out: flows.map(() => "o"),
        into: flows.map(() => "i"),
      },
    };
    const read = await readLink(await linkTo({ ...(await whole()), graph: made }));
    for (const opened of [[], key])
      expect(layout(new NestedGraph(read.graph), new Set(opened)).nodes.length).toBeGreaterThan(0);
  }
});

test("a page with nothing but a workbench opens the link of its address once, in the kernel", async () => {
  const sent: unknown[] = [];
  const store = {
    command: async (name: string, args: unknown) => ({ ok: sent.push([name, args]) === 1 }),
  } as unknown as Store;
  const frame = (): Promise<unknown> => new Promise((done) => requestAnimationFrame(done));
  document.body.innerHTML = '<div><div class="alone"></div></div><div class="mnb-page"><div class="page"></div></div>';
  const [alone, page] = [".alone", ".page"].map((one) => document.querySelector<HTMLElement>(one)!);
  location.hash = LINK;
  const ends = [followAddress(alone!, store)];
  await frame();
  expect([sent, location.hash]).toEqual([[], LINK]);
  ends.push(followAddress(page!, store));
  await frame();
  await vi.waitFor(() => expect([sent, location.hash]).toEqual([[["open_link", { link: LINK }]], ""]));
  location.hash = `${MARK}other`;
  globalThis.dispatchEvent(new Event("hashchange"));
  await frame();
  expect(sent[1]).toEqual(["open_link", { link: `${MARK}other` }]);
  expect(location.hash).toBe(`${MARK}other`); // not opened: another try is possible
  for (const end of ends) end();
});

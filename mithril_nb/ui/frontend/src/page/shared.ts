/**
 * A model in the fragment of the page's address: read, checked, and shown. It may come from any author, so no part of
 * it is used as markup or code.
 */

import { grouped } from "../dom/format";
import { copyText } from "../dom/clipboard";
import { h } from "../dom/dom";
import type { PackedGraph } from "../kernel/contract";
import { MARK } from "../store/address";
import { createPageGraph, type PageGraph, type SavedGraph } from "./graph";
import { Selection } from "./selection";

/** The limits of the fragment: as in models/saving/serialization.py. */
const MOST_CHARACTERS = 8_000;
const MOST_BYTES = 2_000_000;
const MOST_BOXES = 5_000;
const MOST_SIZE = 2_000;
const MOST_TEXT = 5_000;

interface Shared {
  model: { name: string };
  graph: SharedGraph;
}

type SharedGraph = PackedGraph & SavedGraph;

/** Read the fragment of a link. Throws an error with the reason if it is not a whole and valid one. */
export async function readLink(fragment: string): Promise<Shared> {
  if (fragment.length > MOST_CHARACTERS)
    throw new Error(`it has ${grouped(fragment.length)} characters, and the limit is ${grouped(MOST_CHARACTERS)}`);
  let data: unknown;
  try {
    data = JSON.parse(await inflated(fragment.slice(MARK.length)));
  } catch (error) {
    throw error instanceof RangeError ? error : new Error("it is damaged, or a part is missing");
  }
  const { format, version, model, graph } = record(data, "the data");
  if (format !== "mithril_nb.link" || version !== 1) throw new Error("it was made by another version of mithril_nb");
  const { name } = record(model, "the model");
  if (!isText(name)) throw new Error("its model has no name");
  return { model: { ...(model as object), name }, graph: checkedGraph(graph) };
}

async function inflated(letters: string) {
  const bytes = Uint8Array.from(atob(letters.replaceAll("-", "+").replaceAll("_", "/")), (letter) =>
    letter.charCodeAt(0),
  );
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    size += part.value.length;
    if (size > MOST_BYTES) {
      void reader.cancel();
      throw new RangeError(`its data has more than ${grouped(MOST_BYTES)} bytes`);
    }
    text += decoder.decode(part.value, { stream: true });
  }
  return text + decoder.decode();
}

type Check = (value: unknown) => boolean;
const isText = (value: unknown): value is string => typeof value === "string" && value.length <= MOST_TEXT;
const isIndex =
  (least: number, end: number): Check =>
  (value) =>
    Number.isInteger(value) && (value as number) >= least && (value as number) < end;
const isSize: Check = (value) => typeof value === "number" && value >= 0 && value <= MOST_SIZE;
const isShare: Check = (value) => value === null || (typeof value === "number" && value >= 0 && value <= 1);
const isFlag: Check = (value) => typeof value === "boolean";
const isNone: Check = (value) => value === null;
const listOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.length <= MOST_BOXES && value.every(check);

function record(value: unknown, what: string) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`${what} is missing`);
  return value as Record<string, unknown>;
}

/** Return the graph of a model, after checking every value that the layout and the picture read. */
function checkedGraph(data: unknown) {
  const { title, roles, shapes, idle, boxes, flows, opened } = record(data, "the graph");
  const { key } = record(boxes, "the graph");
  if (!listOf(isText)(key)) throw new Error("its graph has no blocks, or too many");
  const count = (key as string[]).length;
  const shape = Array.isArray(shapes) ? shapes.length : 0;
  const texts = listOf(isText);
  const parts: Record<string, Check> = {
    key: isText,
    name: isText,
    kind: isText,
    path: isText,
    label: isText,
    shape: isText,
    w: isSize,
    h: isSize,
    title_w: isSize,
    parent: isIndex(-1, count),
    is_group: isFlag,
    hue: isIndex(0, 8),
    repeat: isIndex(1, 1e9),
    share: isShare,
    problem: isNone,
    counts: listOf(isIndex(0, 1e9)),
    blocks: texts,
    equations: texts,
    inputs: texts,
    outputs: texts,
  };
  const wires: Record<string, Check> = {
    source: isIndex(0, count),
    target: isIndex(0, count),
    out: isText,
    into: isText,
    roles: listOf(isIndex(0, 0)),
    shapes: listOf(isIndex(0, shape)),
    problem: isNone,
  };
  const isGraph =
    isText(title) &&
    texts(shapes) &&
    listOf((pair) => texts(pair) && (pair as unknown[]).length === 2)(idle) &&
    texts(opened) &&
    Array.isArray(roles) &&
    roles.length === 0;
  const { parent = [] } = boxes as { parent?: number[] };
  const isWhole =
    isGraph &&
    areColumns(boxes, parts, count) &&
    areColumns(flows, wires, null) &&
    new Set(key as string[]).size === count &&
    parent.every((at, box) => at < box) &&
    !(key as string[]).includes("");
  if (!isWhole) throw new Error("its graph is broken");
  return { title, is_model: true, roles: [], shapes, idle, boxes, flows, opened } as SharedGraph;
}

/** Return whether data are known columns of one length, with valid values. */
function areColumns(data: unknown, known: Record<string, Check>, count: number | null) {
  const columns = Object.entries(record(data, "a part of the graph"));
  const length = count ?? (Array.isArray(columns[0]?.[1]) ? columns[0][1].length : 0);
  return columns.every(
    ([name, values]) =>
      Object.hasOwn(known, name) && listOf(known[name]!)(values) && (values as unknown[]).length === length,
  );
}

/** Show the model of a link instead of the program of the page. */
export function showShared(page: HTMLElement, { model, graph }: Shared): void {
  const name = model.name || "model";
  document.title = name;
  const frame = h("div", { class: "picture" });
  page.replaceChildren(
    h("h1", {}, h("span", { class: "name", title: name }, name), h("span", { class: "quiet" }, "a model from a link")),
    h(
      "p",
      {},
      "The link itself contains this model; no code of it was run. In Python: ",
      h("code", {}, "ml.load(link)"),
      ". ",
      h("a", { href: "#" }, "Show the program of this page"),
    ),
    frame,
  );
  const copy = async () => {
    if (!(await copyText(location.href, page)))
      throw new Error("Copying is not allowed here. Copy the address of the page.");
  };
  const selection: Selection = new Selection(new Map(), (look) => view?.paint(look));
  const view: PageGraph | null = createPageGraph(frame, graph, selection, h("span"), () => false, [
    {
      title: "JSON: model",
      suffix: "json",
      hint: "The model without its parameters, for ml.load",
      make: () => JSON.stringify(model, null, 1),
    },
    { title: "Copy link", suffix: "", make: copy, done: "Copied" },
  ]);
}

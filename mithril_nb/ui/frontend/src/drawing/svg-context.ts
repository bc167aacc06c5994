/** A drawing context that writes SVG: the part of `CanvasRenderingContext2D` with which graphs are drawn. */

import { oneLine } from "./lettering";

type Matrix = [number, number, number, number, number, number];

/**
 * Escape a text on one line: XML cannot contain control characters, and marks of direction would reorder other texts.
 */
const escaped = (text: string) =>
  oneLine(text)
    .replace(/[\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);
const round = (value: number) => Math.round(value * 100) / 100;

export class SvgContext {
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  lineJoin = "miter";
  lineCap = "butt";
  globalAlpha = 1;
  font = "10px sans-serif";
  textAlign: CanvasTextAlign = "left";
  private readonly parts: string[] = [];
  private readonly kept: object[] = [];
  private dashes: readonly number[] = [];
  private matrix: Matrix = [1, 0, 0, 1, 0, 0];
  private d = "";

  constructor(private readonly ruler: CanvasRenderingContext2D | null) {}

  /** Return the picture; everything in it is data, without scripts, links or ids. */
  toText(width: number, height: number, ground: string, title: string) {
    const size =
      `width="${Math.ceil(width)}" height="${Math.ceil(height)}" viewBox="0 0 ${Math.ceil(width)} ` +
      `${Math.ceil(height)}"`;
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" role="img" ${size}><title>${escaped(title)}</title><rect ` +
      `width="100%" height="100%" fill="${escaped(ground)}"/>${this.parts.join("")}</svg>\n`
    );
  }

  save() {
    const { d: _, ...state } = this; // the path is not part of the state
    this.kept.push(state);
  }

  restore() {
    Object.assign(this, this.kept.pop());
  }

  setTransform(...matrix: Matrix) {
    this.matrix = matrix;
  }

  translate(x: number, y: number) {
    const [a, b, c, d, e, f] = this.matrix;
    this.matrix = [a, b, c, d, e + a * x + c * y, f + b * x + d * y];
  }

  scale(x: number, y: number) {
    const [a, b, c, d, e, f] = this.matrix;
    this.matrix = [a * x, b * x, c * y, d * y, e, f];
  }

  clearRect() {}

  setLineDash(dashes: readonly number[]) {
    this.dashes = dashes;
  }

  beginPath() {
    this.d = "";
  }

  closePath() {
    this.d += "Z";
  }

  moveTo(x: number, y: number) {
    this.add("M", x, y);
  }

  lineTo(x: number, y: number) {
    this.add(this.d ? "L" : "M", x, y);
  }

  quadraticCurveTo(...points: number[]) {
    this.add("Q", ...points);
  }

  bezierCurveTo(...points: number[]) {
    this.add("C", ...points);
  }

  /** Only whole circles are drawn. */
  arc(x: number, y: number, radius: number) {
    this.add("M", x + radius, y);
    for (const side of [-1, 1]) this.add("A", radius, radius, 0, 1, 1, x + side * radius, y);
    this.closePath();
  }

  roundRect(x: number, y: number, w: number, h: number, radii: number | readonly number[]) {
    const [a, b, c, d] = (typeof radii === "number" ? [radii, radii, radii, radii] : radii).map((radius) =>
      Math.min(radius, w / 2, h / 2),
    ) as [number, number, number, number];
    this.add("M", x + a, y);
    this.add("L", x + w - b, y);
    if (b) this.add("A", b, b, 0, 0, 1, x + w, y + b);
    this.add("L", x + w, y + h - c);
    if (c) this.add("A", c, c, 0, 0, 1, x + w - c, y + h);
    this.add("L", x + d, y + h);
    if (d) this.add("A", d, d, 0, 0, 1, x, y + h - d);
    this.add("L", x, y + a);
    if (a) this.add("A", a, a, 0, 0, 1, x + a, y);
    this.closePath();
  }

  fill() {
    this.path(`fill="${escaped(this.fillStyle)}"`);
  }

  stroke() {
    this.path(this.line());
  }

  fillRect(x: number, y: number, w: number, h: number) {
    this.put(
      "rect",
      `x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}" fill="${escaped(this.fillStyle)}"`,
    );
  }

  strokeRect(x: number, y: number, w: number, h: number) {
    this.put("rect", `x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}" ${this.line()}`);
  }

  fillText(text: string, x: number, y: number) {
    this.text(text, x, y, `fill="${escaped(this.fillStyle)}"`);
  }

  strokeText(text: string, x: number, y: number) {
    this.text(text, x, y, this.line());
  }

  measureText(text: string) {
    const size = Number(/(\d+(\.\d+)?)px/.exec(this.font)?.[1] ?? 10);
    if (!this.ruler) return { width: text.length * size * 0.6 };
    this.ruler.font = this.font;
    return { width: this.ruler.measureText(text).width };
  }

  private add(letter: string, ...values: number[]) {
    this.d += letter + values.map(round).join(" ");
  }

  private line() {
    const dashes = this.dashes.length ? ` stroke-dasharray="${this.dashes.join(" ")}"` : "";
    return (
      `fill="none" stroke="${escaped(this.strokeStyle)}" stroke-width="${round(this.lineWidth)}" ` +
      `stroke-linejoin="${this.lineJoin}" stroke-linecap="${this.lineCap}"${dashes}`
    );
  }

  private path(look: string) {
    if (this.d) this.put("path", `d="${this.d}" ${look}`);
  }

  private text(text: string, x: number, y: number, look: string) {
    const [, bold, size, family] = /^(600 )?([\d.]+)px (.*)$/.exec(this.font) ?? [];
    const anchor = { center: "middle", right: "end", end: "end", left: "start", start: "start" }[this.textAlign];
    this.put(
      "text",
      `x="${round(x)}" y="${round(y)}" font-size="${round(Number(size ?? 10))}" ` +
        `font-family="${escaped(family ?? "sans-serif")}"${bold ? ' font-weight="600"' : ""} ` +
        `text-anchor="${anchor}" ${look}`,
      escaped(text),
    );
  }

  private put(tag: string, attributes: string, content = "") {
    const opacity = this.globalAlpha < 1 ? ` opacity="${round(this.globalAlpha)}"` : "";
    const isPlain = this.matrix.every((value, at) => value === [1, 0, 0, 1, 0, 0][at]);
    const transform = isPlain ? "" : ` transform="matrix(${this.matrix.map(round).join(" ")})"`;
    const end = content ? `>${content}</${tag}>` : "/>";
    this.parts.push(`<${tag} ${attributes}${opacity}${transform}${end}`);
  }
}

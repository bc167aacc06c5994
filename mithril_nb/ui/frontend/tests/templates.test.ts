import { expect, test, vi } from "vitest";
import { templateButtons } from "../src/editor/templates";
import type { TemplateData } from "../src/kernel/contract";
import type { Store } from "../src/store/store";

function buttonOf(change: Partial<TemplateData>): { button: HTMLElement; command: ReturnType<typeof vi.fn> } {
  const template = { name: "u_net", title: "U-Net", summary: "Down and up.", blocks: [], wires: [], ...change };
  const command = vi.fn();
  const palette = [{ kind: "Conv2d", hue: 2 }];
  const [button] = templateButtons({ snapshot: { palette, templates: [template] }, command } as unknown as Store);
  return { button: button!, command };
}

test("a template is opened by its button, whose picture has a mark in the family's colour for each block", () => {
  const { button, command } = buttonOf({
    blocks: [
      ["Conv2d", 0, 0],
      ["Other", 1, 0],
      ["Conv2d", 1, 1],
    ],
    wires: [
      [0, 1],
      [0, 2],
    ],
  });
  const marks = [...button.querySelectorAll("rect")];
  expect(marks.map((mark) => mark.getAttribute("style"))).toEqual(
    [2, 7, 2].map((hue) => `fill: var(--mnb-hue-${hue})`),
  );
  expect(new Set(marks.map((mark) => `${mark.getAttribute("x")} ${mark.getAttribute("y")}`)).size).toBe(3);
  button.click();
  expect(command).toHaveBeenCalledWith("load_example", { template: "u_net" });
});

test("wires that skip blocks run above them, and none crosses to the next line", () => {
  const blocks = Array.from({ length: 14 }, (_, column): [string, number, number] => ["Conv2d", column, 0]);
  const wires: [number, number][] = blocks.slice(1).map((_, at) => [at, at + 1]);
  const { button } = buttonOf({ blocks, wires: [...wires, [1, 5], [2, 13]] });
  const parts = button.querySelector("path")!.getAttribute("d")!.split("M").filter(Boolean);
  expect(parts).toHaveLength(13);
  const skip = parts.filter((part) => part.includes("H"));
  expect(skip).toHaveLength(1);
  const top = Number(button.querySelector("rect")!.getAttribute("y"));
  expect(Number(/V(\d+)H/.exec(skip[0]!)![1])).toBeLessThan(top);
});

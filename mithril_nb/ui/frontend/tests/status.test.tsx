/** The status line: costs have the names and the convention of graph and table. */

import { afterEach, beforeEach, expect, test } from "vitest";
import { FakeSession } from "../dev/fake-model";
import { Kernel } from "../src/kernel/kernel";
import type { CostTableRow } from "../src/kernel/contract";
import type { Snapshot } from "../src/kernel/model";
import { mount } from "../src/dom/view";
import { Status } from "../src/shell/status";
import { Store } from "../src/store/store";
import { finderIn } from "./find";
import { shortData } from "./short-data";

let store: Store;
let status: ReturnType<typeof mount>;
const find = finderIn(() => status.root);
const textOf = (name: string): string => find(`[data-mnb-status="${name}"]`).textContent;
const change = (part: Partial<Snapshot>): void => store.takeSnapshot({ ...store.snapshot, ...part });

beforeEach(() => {
  const session = new FakeSession(shortData(70));
  store = new Store(session.snapshot, new Kernel(session));
  status = mount(<Status store={store} />);
});
afterEach(() => {
  status.destroy();
  store.kernel.destroy();
});

test("names the costs of the program, and those of the selected block by the chosen convention", () => {
  const cost = store.snapshot.cost!;
  const row = { ...cost.rows[0]!, block: "linear_0", flops: 250, total: { flops: 500 } } as CostTableRow;
  const total = { ...cost.total, flops: 1000, bytes_accessed: 2000, unknown: { flops: 1 } };
  const overlay = { name: "", own: false, choices: [] };
  change({ cost: { ...cost, rows: [row], total }, overlay });
  expect([textOf("flops"), textOf("bytes_accessed")]).toEqual([
    "FLOPs: ≥ 1.00 kFLOP in total",
    "Bytes: 2.00 kB in total",
  ]);
  expect(find('[data-mnb-status="flops"]').title).toBe(
    "Floating-point operations of one run of the program: ≥ 1,000 FLOP",
  );
  expect(status.root.querySelector('[data-mnb-status="selected"]')).toBeNull();
  store.pinBlocks(["linear_0"]);
  expect(textOf("selected")).toBe("linear_0: FLOPs, with inner blocks 500 FLOP, ≤ 50.0 %");
  change({ overlay: { ...overlay, own: true } });
  expect(textOf("selected")).toBe("linear_0: own FLOPs 250 FLOP, ≤ 25.0 %");
  change({
    cost: {
      ...cost,
      rows: [{ ...row, total: undefined }],
      total: { ...total, unknown: {} },
    } as unknown as Snapshot["cost"],
  });
  expect(textOf("selected")).toBe("linear_0: FLOPs 250 FLOP, 25.0 %");
});

test("shows formulas of symbolic sizes, and nothing while costs are unknown", () => {
  const cost = store.snapshot.cost!;
  const row = {
    ...cost.rows[0]!,
    block: "linear_0",
    flops: null,
    formulas: { flops: ["2·n", "2·n·m"] },
  } as unknown as CostTableRow;
  change({
    cost: {
      ...cost,
      rows: [row],
      total: { ...cost.total, flops: null, formulas: { flops: ["4·n", "4·n·m"] } },
    } as unknown as Snapshot["cost"],
  });
  store.pinBlocks(["linear_0"]);
  expect([textOf("flops"), textOf("selected")]).toEqual(["FLOPs: 4·n in total", "linear_0: FLOPs 2·n"]);
  change({ cost: null });
  expect(status.root.querySelector('[data-mnb-status="flops"], [data-mnb-status="selected"]')).toBeNull();
});

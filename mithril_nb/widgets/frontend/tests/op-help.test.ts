/** Help is the same here as in Python, whose tests write the file. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { opHelp } from "../src/op-help";

const golden = JSON.parse(readFileSync(join(import.meta.dirname, "../../../../tests/viz/golden/op_help.json"), "utf8")) as [string, string, string | null][];

test.each(golden)("%s %s", (stage, opcode, help) => expect(opHelp(stage, opcode)).toBe(help));

// Build the pages that show the workbench with a fixture, and a synthetic graph, into a new temporary folder.
import { build } from "esbuild";
import { copyFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { options, root } from "./bundle.mjs";

const outdir = process.argv[2] ? resolve(process.argv[2]) : mkdtempSync(join(tmpdir(), "mnb-dev-"));
await build({ ...options(), entryPoints: { page: "dev/page.ts", graph: "dev/graph.ts" }, outdir, sourcemap: "inline" });
for (const name of ["index.html", "graph.html"]) copyFileSync(join(root, "dev", name), join(outdir, name));
console.log(join(outdir, "index.html"));

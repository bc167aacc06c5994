// Build the page that shows the workbench with a fixture, into a new temporary folder.
import { build } from "esbuild";
import { copyFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { options, root } from "./bundle.mjs";

const outdir = process.argv[2] ? resolve(process.argv[2]) : mkdtempSync(join(tmpdir(), "mnb-dev-"));
await build({ ...options(), entryPoints: { page: "dev/page.ts" }, outdir, sourcemap: "inline" });
copyFileSync(join(root, "dev", "index.html"), join(outdir, "index.html"));
console.log(join(outdir, "index.html"));

// Build the widget modules, the scripts of pages and the licences file into mithril_nb/viz/static, or the folder given
// as the only argument.
import { build } from "esbuild";
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { compressModule, options, root } from "./bundle.mjs";

const outdir = resolve(process.argv[2] ?? join(root, "..", "..", "viz", "static"));
mkdirSync(outdir, { recursive: true });
const result = await build({
  ...options(),
  entryPoints: {
    assets: "src/assets.ts",
    workbench: "src/entry-workbench.ts",
    explorer: "src/entry-explorer.ts",
    curves: "src/entry-curves.ts",
  },
  outdir,
  minify: true,
  metafile: true,
});
await build({
  ...options(),
  format: "iife",
  entryPoints: { page: "src/entry-page.ts", outputs: "src/entry-outputs.ts" },
  outdir,
  minify: true,
});
const assets = join(outdir, "assets.js");
const bundled = readFileSync(assets);
writeFileSync(assets, await compressModule(bundled));

// Licences of the bundled packages, found by the paths of the bundle's inputs.
const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
  if (found) packages.add(found[1]);
}
const notices = [...packages].sort().map((name) => {
  const folder = join(root, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((candidate) => /^licen[cs]e/i.test(candidate));
  if (!file || !existsSync(join(folder, file)))
    throw new Error(`${name} ${version} has no licence text, so it cannot be bundled`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
const rule = `\n${"-".repeat(80)}\n\n`;
writeFileSync(join(outdir, "THIRD_PARTY_LICENSES.txt"), `Packages bundled in assets.js\n${rule}${notices.join(rule)}`);
for (const [path, { bytes }] of Object.entries(result.metafile.outputs))
  console.log(`${path.split("/").pop().padEnd(14)} ${(bytes / 1000).toFixed(1)} kB`);
console.log(`assets.js compressed: ${(readFileSync(assets).length / 1000).toFixed(1)} kB`);

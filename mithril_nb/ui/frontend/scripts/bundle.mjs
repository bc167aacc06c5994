// Shared by the build and the dev page: esbuild options, and the key under which the bundle registers itself.
import { transform } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** The file of mithril_nb/viz in the bundle; the static pages use it too. */
const SHARED = "tokens.json";

/** Return a key per version: after an upgrade without a reload, a page can have bundles of two versions. */
export function assetKey() {
  const hash = createHash("sha256");
  for (const folder of ["src", "styles"]) {
    const names = readdirSync(join(root, folder), { recursive: true }).filter((name) => /\.(tsx?|css)$/.test(name));
    for (const name of names.sort())
      hash.update(name.replaceAll(sep, "/")).update(readFileSync(join(root, folder, name)));
  }
  hash.update(SHARED).update(readFileSync(join(root, "..", "..", "viz", SHARED)));
  hash.update(readFileSync(join(root, "package-lock.json")));
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return `mithril_nb/${version}/${hash.digest("hex").slice(0, 12)}`;
}

/** Bundles style sheets as minified strings. */
const cssAsText = {
  name: "css-as-text",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, "utf8"), {
        loader: "css",
        minify: true,
        target: "chrome111",
      });
      return { contents: code.trim(), loader: "text" };
    });
  },
};

export function options() {
  return {
    absWorkingDir: root,
    bundle: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    jsx: "automatic",
    jsxImportSource: "preact",
    plugins: [cssAsText],
    define: { __MNB_KEY__: JSON.stringify(assetKey()) },
    legalComments: "none",
    logLevel: "warning",
  };
}

/**
 * Return a module that contains another module compressed, and runs it when the widget is created. Saved notebooks
 * contain the code of their widgets; compression reduces it to less than half.
 *
 * `initialize` does not await the module: after two seconds, anywidget fails with "Failed to initialize model." and
 * drops its messages, and decompression can take longer on a busy machine. An event reports that the module is loaded.
 */
export async function compressModule(code) {
  const carrier = `
    const packed = "${gzipSync(code, { level: 9 }).toString("base64")}";
    async function load() {
      const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
      const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
      const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
      try {
        (await import(url)).default.initialize();
      } finally {
        URL.revokeObjectURL(url);
      }
    }
    const initialize = () => void load().catch((error) => console.error("mithril_nb: the code of the widgets " +
        "failed to load.", error));
    export default { initialize, render: ({ el }) => { el.style.display = "none"; } };`;
  return (await transform(carrier, { minify: true, format: "esm", target: "es2022" })).code;
}

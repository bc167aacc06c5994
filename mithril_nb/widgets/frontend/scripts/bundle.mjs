// What the build and the dev page share: esbuild options and the key under which the bundle registers itself.
import { transform } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** What the bundle holds of mithril_nb/viz: a definition that the static pages are made with too. */
const SHARED = "tokens.json";

/** Bundles of different versions may meet on one page, as after an upgrade without a reload: each has its own key. */
export function assetKey() {
  const hash = createHash("sha256");
  for (const folder of ["src", "styles"]) {
    for (const name of readdirSync(join(root, folder)).sort()) hash.update(name).update(readFileSync(join(root, folder, name)));
  }
  hash.update(SHARED).update(readFileSync(join(root, "..", "..", "viz", SHARED)));
  hash.update(readFileSync(join(root, "package-lock.json")));
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return `mithril_nb/${version}/${hash.digest("hex").slice(0, 12)}`;
}

/** Style sheets become strings in the bundle, minified as the code is. */
const cssAsText = {
  name: "css-as-text",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, "utf8"), { loader: "css", minify: true, target: "chrome111" });
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
    plugins: [cssAsText],
    define: { __MNB_KEY__: JSON.stringify(assetKey()) },
    legalComments: "none",
    logLevel: "warning",
  };
}

/**
 * A module that carries another one compressed, and runs it when the widget is made. A notebook that is saved with its
 * widgets keeps the code of the shared one: so it is less than half as large.
 *
 * `initialize` does not wait for it: after two seconds anywidget gives a model up ("Failed to initialize model.") and
 * drops its messages, and on a busy machine unpacking takes longer. Widgets are told by an event when it is there.
 */
export async function carrying(code) {
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
    const initialize = () => void load().catch((error) => console.error("mithril_nb: the code of its widgets does not run here.", error));
    export default { initialize, render: ({ el }) => { el.style.display = "none"; } };`;
  return (await transform(carrier, { minify: true, format: "esm", target: "es2022" })).code;
}

// What the build and the dev page share: esbuild options and the key under which the bundle registers itself.
import { transform } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Bundles of different versions may meet on one page, as after an upgrade without a reload: each has its own key. */
export function assetKey() {
  const hash = createHash("sha256");
  for (const folder of ["src", "styles"]) {
    for (const name of readdirSync(join(root, folder)).sort()) hash.update(name).update(readFileSync(join(root, folder, name)));
  }
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

import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { expect, test } from "vitest";

const SRC = join(import.meta.dirname, "../src");

/** Folders, lowest first: a file imports only from its own folder and from folders before it. */
const ORDER = [
  "dom",
  "kernel",
  "store",
  "controls",
  "code",
  "drawing",
  "graph",
  "layout",
  "search",
  "costs",
  "stages",
  "editor",
  "train",
  "shell",
  "page",
  "",
];

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));

test("imports lead from upper folders to lower ones, without circles", () => {
  const imports = new Map(
    files.map((name) => {
      const found = [...readFileSync(join(SRC, name), "utf8").matchAll(/from "(\.[^"]*)"/g)].map(([, path]) =>
        relative(SRC, resolve(dirname(join(SRC, name)), path!)),
      );
      return [name, found.filter((path) => !path.startsWith("..")).map((path) => `${path}.ts`)];
    }),
  );
  const level = (name: string): number => ORDER.indexOf(name.includes("/") ? dirname(name) : "");
  expect(files.filter((name) => level(name) < 0)).toEqual([]);
  const upwards = [...imports].flatMap(([name, found]) =>
    found.filter((to) => level(to) > level(name)).map((to) => `${name} → ${to}`),
  );
  expect(upwards).toEqual([]);
  // Remove files without imports again and again; what remains is in a circle.
  let left = files;
  for (let count = -1; count !== left.length;) {
    count = left.length;
    left = left.filter((name) => imports.get(name)!.some((to) => left.includes(to)));
  }
  expect(left).toEqual([]);
});

test("no folder has more than 15 files", () => {
  const counts = ORDER.map(
    (folder) =>
      [folder, files.filter((name) => (folder ? dirname(name) === folder : !name.includes("/"))).length] as const,
  );
  expect(counts.filter(([, count]) => count > 15)).toEqual([]);
});

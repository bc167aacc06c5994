import { defineConfig } from "vitest/config";

export default defineConfig({
  define: { __MNB_KEY__: JSON.stringify("mithril_nb/test") },
  test: {
    environment: "jsdom",
    include: ["tests/**/*.test.{ts,tsx}"],
    setupFiles: ["tests/setup.ts"],
    pool: "threads",
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});

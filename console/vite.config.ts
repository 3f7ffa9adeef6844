import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// The page is served below "/" by `moldau console` and below "/console/" by a broker: every address
// in it is relative. Nothing is inlined, since the content security policy allows no inline scripts
// or styles and no data: addresses.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/moldau/console/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    reportCompressedSize: false,
  },
  server: {
    proxy: { "/api": process.env["MOLDAU_CONSOLE"] ?? "http://127.0.0.1:9099" },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});

import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// File names are stable and nothing is inlined: the build is committed, and the page's content
// policy takes scripts, styles and pictures from its own address alone.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/bascule/control/web/page",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rollupOptions: {
      checks: { pluginTimings: false },
      output: {
        entryFileNames: "bascule.js",
        chunkFileNames: "[name].js",
        assetFileNames: "[name][extname]",
      },
    },
  },
});

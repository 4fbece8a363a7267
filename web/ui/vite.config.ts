import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  // Relative addresses: the page works under any path prefix that a proxy removes.
  base: "./",
  plugins: [react()],
  worker: { format: "es" },
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy permits no data: scripts, fonts or workers
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});

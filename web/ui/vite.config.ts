// @ts-ignore the build runs in Node, but its types are no dependency
import { readdirSync, readFileSync } from "node:fs";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** packageOf returns the folder of the package that a module belongs to; undefined for the page's own modules. */
function packageOf(module: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(module)?.[0];
}

/** noticeOf returns the name, version and licence of a package with the text of its licence. */
function noticeOf(folder: string): string {
  const read = (file: string) => readFileSync(`${folder}/${file}`, "utf8") as string;
  const { name, version, license } = JSON.parse(read("package.json"));
  const files = (readdirSync(folder) as string[]).filter((file) => /^(licen[cs]e|notice)/i.test(file)).sort();
  if (files.length === 0) throw new Error(`${name} has no licence file: the page must contain its text`);
  const texts = files.map((file) => read(file).replace(/\r\n/g, "\n").trim());
  return [`${name} ${version} (${license})`, ...texts].join("\n\n");
}

/** licenses writes the notices of all packages in the bundle: their licences require them in each copy. */
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((file) => (file.type === "chunk" ? Object.keys(file.modules) : []));
      const folders = new Set(modules.flatMap((module) => packageOf(module.replaceAll("\\", "/")) ?? []));
      const notices = [...folders].map(noticeOf).sort();
      this.emitFile({
        type: "asset",
        fileName: "THIRD_PARTY_LICENSES.txt",
        source: `The admin UI contains these packages.\n\n${notices.join(`\n\n${"-".repeat(80)}\n\n`)}\n`,
      });
    },
  };
}

export default defineConfig({
  // Relative addresses: the page works under any path prefix that a proxy removes.
  base: "./",
  plugins: [react(), licenses()],
  worker: { format: "es" },
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy permits no data: scripts, fonts or workers
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 700, // kB; all pages are one script
  },
});

import { defineConfig } from "vite";

export default defineConfig({
  // Relative, so that the API may stand below a path of a proxy's choosing.
  base: "./",
  build: {
    outDir: "../controller/rest/pages/web_files",
    emptyOutDir: true,
    // The Content-Security-Policy allows files of the API alone, no data: addresses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  // `npm run dev` serves the pages, and a running fuga the API.
  server: { proxy: { "/v1": process.env.FUGA_URL ?? "http://127.0.0.1:8080" } },
});

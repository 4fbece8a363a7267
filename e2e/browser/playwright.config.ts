import { defineConfig } from "@playwright/test";

// browser_test.go starts Playwright once for each file of tests/, with the environment that
// support.ts reads.
export default defineConfig({
  testDir: "tests",
  outputDir: process.env.RESULTS_DIR ?? "../../.cache/browser/results",
  reporter: "list",
  workers: 1, // the test cases of a file share one gateway
  retries: 0,
  forbidOnly: true,
  timeout: 120_000, // failures wait; a machine under load is slow
  expect: { timeout: 30_000 },
  use: {
    baseURL: process.env.ADMIN_URL,
    viewport: { width: 1280, height: 800 },
    locale: "en-GB",
    timezoneId: "UTC",
    screenshot: "only-on-failure",
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: [
        "--headless",
        "--no-sandbox", // Chromium refuses to run as root with a sandbox
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        // The browser resolves no name, so that no request can leave the machine.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*",
      ],
    },
  },
});

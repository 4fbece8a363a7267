// A demo and a browser for the scripts that measure the pages or take screenshots of them.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chromium } from "@playwright/test";

/**
 * Starts a demo with a background load of so many requests per second and calls use(demo, browser). Stops both
 * afterwards. demo is what `tierway demo --json` prints: admin_url, admin_key and more.
 */
export async function withDemo(program, load, use) {
  const flags = ["--json", "--load", String(load), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
  const child = spawn(program, ["demo", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [line] = await once(child.stdout, "data");
    const browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--headless", "--no-sandbox", "--disable-gpu"],
    });
    try {
      await use(JSON.parse(String(line)), browser);
    } finally {
      await browser.close();
    }
  } finally {
    child.kill("SIGTERM");
  }
}

/** Opens a page of the UI with the rights of the demo's admin, in a context of its own. */
export async function openPage(demo, browser, path, options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 760 }, ...options });
  const page = await context.newPage();
  await page.request.post(`${demo.admin_url}/admin/session`, { data: { key: demo.admin_key } });
  await page.goto(`${demo.admin_url}/#${path}`);
  return page;
}

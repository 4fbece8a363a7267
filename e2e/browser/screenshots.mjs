// Takes the screenshots of docs/images from the demo: node screenshots.mjs TIERWAY FOLDER
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chromium } from "@playwright/test";

const [program, folder] = process.argv.slice(2);
// Time in which the background load fills charts and tables.
const warmUp = 100_000;
const settle = 2500;

const shots = [
  ["overview", "/"],
  ["overview", "/", "dark"],
  ["tenants", "/tenants"],
  ["workers", "/workers"],
  ["rules", "/rules", "light", explain],
  ["decisions", "/decisions"],
  ["decisions", "/decisions", "dark"],
  ["metrics", "/metrics"],
  ["config", "/config?q=weight"],
  ["audit", "/audit"],
  ["clients", "/clients?client=python"],
];

async function explain(page) {
  await page.getByRole("textbox", { name: /^Prompt/ }).fill("Write a Python function that sorts a list");
  await page.getByRole("button", { name: "Explain", exact: true }).click();
}

async function startDemo() {
  const flags = ["--json", "--load", "6", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
  const demo = spawn(program, ["demo", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(demo.stdout, "data");
  return { demo, ready: JSON.parse(String(line)) };
}

const { demo, ready } = await startDemo();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu"],
});
try {
  const headers = { Authorization: `Bearer ${ready.admin_key}`, "Content-Type": "application/json" };
  const change = (method, path, body) => fetch(ready.admin_url + path, { method, headers, body: JSON.stringify(body) });
  await change("POST", "/admin/tenants", { name: "team-a", limits: { rpm: 600, day_tokens: 2_000_000 }, issue_key: true });
  await change("PATCH", "/admin/workers/small-1", { weight: 3, ttl_s: 3600 });
  await change("POST", "/admin/workers/large-1/drain", {});
  await new Promise((done) => setTimeout(done, warmUp));
  for (const [name, path, colorScheme = "light", act] of shots) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 760 }, colorScheme });
    const page = await context.newPage();
    await page.request.post(`${ready.admin_url}/admin/session`, { data: { key: ready.admin_key } });
    await page.goto(`${ready.admin_url}/#${path}`);
    await page.waitForTimeout(settle);
    if (act) {
      await act(page);
      await page.waitForTimeout(settle);
    }
    await page.screenshot({ path: `${folder}/${name}${colorScheme === "dark" ? "-dark" : ""}.png` });
    await context.close();
  }
} finally {
  await browser.close();
  demo.kill("SIGTERM");
}

// Takes the screenshots of docs/images from the demo: node screenshots.mjs TIERWAY FOLDER
import { openPage, withDemo } from "./demo.mjs";

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

await withDemo(program, 6, async (demo, browser) => {
  const headers = { Authorization: `Bearer ${demo.admin_key}`, "Content-Type": "application/json" };
  const change = (method, path, body) => fetch(demo.admin_url + path, { method, headers, body: JSON.stringify(body) });
  await change("POST", "/admin/tenants", { name: "team-a", limits: { rpm: 600, day_tokens: 2_000_000 }, issue_key: true });
  await change("PATCH", "/admin/workers/small-1", { weight: 3, ttl_s: 3600 });
  await change("POST", "/admin/workers/large-1/drain", {});
  await new Promise((done) => setTimeout(done, warmUp));
  for (const [name, path, colorScheme = "light", act] of shots) {
    const page = await openPage(demo, browser, path, { colorScheme });
    await page.waitForTimeout(settle);
    if (act) {
      await act(page);
      await page.waitForTimeout(settle);
    }
    await page.screenshot({ path: `${folder}/${name}${colorScheme === "dark" ? "-dark" : ""}.png` });
    await page.context().close();
  }
});

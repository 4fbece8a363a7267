import { execFileSync } from "node:child_process";
import { admin, env, expect, expectAccessible, login, send, test } from "../support.ts";

const pages: [path: string, heading: string][] = [
  ["/", "Overview"],
  ["/tenants", "Tenants"],
  ["/workers", "Workers"],
  ["/rules", "Tiers and rules"],
  ["/decisions", "Decisions"],
  ["/metrics", "Metrics"],
  ["/config", "Config"],
  ["/audit", "Audit"],
  ["/clients", "Client setup"],
];

for (const [path, heading] of pages) {
  test(`${heading} is accessible, and fits 360 pixels and a zoom of 200 %`, async ({ page }) => {
    await send(3, "Write a haiku");
    await login(page, env.adminKey, path);
    await expect(page.getByRole("heading", { level: 1, name: heading })).toBeVisible();
    await expect(page.locator(".skeleton")).toHaveCount(0);
    await expectAccessible(page);
    // A zoom of 200 % of a window of 1280 pixels has 640 pixels.
    for (const width of [640, 360]) {
      await page.setViewportSize({ width, height: 740 });
      const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      // Charts follow the width of their box a moment later.
      await expect.poll(overflow, { message: `pixels that overflow at ${width}` }).toBeLessThanOrEqual(0);
    }
  });
}

test("the whole page works under a path prefix", async ({ page, journal }) => {
  for (const [path, heading] of pages) {
    await login(page, env.adminKey, path, env.prefixURL);
    await expect(page.getByRole("heading", { level: 1, name: heading })).toBeVisible();
  }
  await expect(page.locator(".pill")).toHaveText("live");
  const outside = journal.requests.filter((url) => !url.startsWith(env.prefixURL) && !/^(data|blob|about):/.test(url));
  expect(outside).toEqual([]);
});

test("in a narrow window, a menu opens the pages by keyboard", async ({ page }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await login(page);
  const menu = page.getByRole("button", { name: "Menu" });
  const link = page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Workers" });
  await expect(menu).toHaveAttribute("aria-expanded", "false");
  await expect(link).toBeHidden();
  await menu.focus();
  await page.keyboard.press("Enter");
  await expect(link).toBeVisible();
  await expectAccessible(page);
  await page.keyboard.press("Escape");
  await expect(link).toBeHidden();
  await expect(menu).toBeFocused();
  await page.keyboard.press("Enter");
  await link.focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Workers" })).toBeVisible();
  await expect(menu).toHaveAttribute("aria-expanded", "false");
});

test("pages are opened and left by keyboard", async ({ page }) => {
  await login(page);
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await expect(page.getByRole("heading", { level: 1, name: "Workers" })).toBeFocused();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keyboard shortcuts" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
});

test("the theme is kept and applies before the first paint", async ({ page }) => {
  await login(page);
  await page.getByLabel("Theme").selectOption("dark");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
  await page.getByLabel("Theme").selectOption("system");
  await expect(page.locator("html")).not.toHaveAttribute("data-theme", /.*/);
});

test("the setup of a client is a command that works", async ({ page }) => {
  await login(page, env.adminKey, "/clients");
  const command = (await page.locator("pre").first().textContent()) ?? "";
  expect(command).toContain(env.baseURL);
  const out = execFileSync("bash", ["-c", command], { env: { ...process.env, OPENAI_API_KEY: env.apiKey }, encoding: "utf8" });
  expect(JSON.parse(out).choices[0].message.content).toBeTruthy();
});

test("a page that fails shows why, and tries again", async ({ page, journal }) => {
  journal.permit(/status of 5\d\d/);
  await login(page, env.adminKey, "/clients");
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await page.route("**/admin/tenants?*", (route) =>
    route.fulfill({ status: 500, contentType: "application/problem+json", headers: { "X-Request-Id": "r-1" }, body: '{"title":"Internal Server Error","status":500,"detail":"The database is on fire."}' }),
  );
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Tenants" }).click();
  await expect(page.getByRole("alert")).toContainText("The database is on fire.");
  await expect(page.getByRole("alert")).toContainText("r-1");
  await page.unroute("**/admin/tenants?*");
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByRole("button", { name: "acme" })).toBeVisible();
  expect(await admin("GET", "/admin/tenants")).toBeTruthy();
});

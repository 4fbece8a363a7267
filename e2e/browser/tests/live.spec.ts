import { admin, connectionLost, env, expect, expectAccessible, gateway, login, send, statusError, test } from "../support.ts";

const pill = ".pill";

test("data of a stopped gateway is stale within three seconds, and live again without a reload", async ({ page, journal }) => {
  journal.permit(connectionLost, statusError(401)); // a restarted gateway has no sessions
  await login(page);
  await expect(page.locator(pill)).toHaveText("live");
  await page.evaluate(() => ((window as unknown as { mark: number }).mark = 1));
  await gateway.kill();
  await expect(page.locator(pill)).toHaveText(/stale since/);
  await expect(page.locator(".dimmed").first()).toBeVisible();
  await expectAccessible(page); // old data and its label stay readable
  await gateway.start();
  await expect(page.getByLabel("Admin key")).toBeVisible();
  await page.getByLabel("Admin key").fill(env.adminKey);
  await page.keyboard.press("Enter");
  await expect(page.locator(pill)).toHaveText("live");
  expect(await page.evaluate(() => (window as unknown as { mark: number }).mark)).toBe(1);
});

test("without a stream, data is stale and polled", async ({ page, journal }) => {
  journal.permit(statusError(429));
  await page.addInitScript(() => Reflect.deleteProperty(window, "SharedWorker")); // its requests cannot be replaced
  await page.route(/admin\/stream/, (route) => route.fulfill({ status: 429 }));
  await login(page, env.adminKey, "/workers");
  await expect(page.locator(pill)).toHaveText(/stale since/);
  await admin("PATCH", "/admin/workers/small-1", { weight: 7 });
  await expect(page.getByText(/live override/)).toBeVisible();
  await expect(page.locator('tr[data-key="small-1"]')).toContainText("override");
  await admin("DELETE", "/admin/overrides/small-1");
  await expect(page.getByText(/live override/)).toHaveCount(0);
  await page.unroute(/admin\/stream/);
  await expect(page.locator(pill)).toHaveText("live");
});

test("data of a gateway that is away is stale without an error in each panel", async ({ page, journal }) => {
  journal.permit(connectionLost);
  await login(page, env.adminKey, "/workers");
  await expect(page.locator('tr[data-key="small-1"]')).toBeVisible();
  await expect(page.locator(pill)).toHaveText("live");
  const polls: string[] = [];
  page.on("requestfailed", (r) => r.url().endsWith("/admin/overview") && polls.push(r.url()));
  await gateway.kill();
  await expect.poll(() => polls.length).toBeGreaterThan(0);
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(page.locator(pill)).toHaveText(/stale since/);
});

test("ten tabs of a browser share one stream", async ({ page, context }) => {
  await login(page);
  await expect(page.locator(pill)).toHaveText("live");
  const tabs = [page];
  for (let i = 1; i < 10; i++) {
    const tab = await context.newPage();
    await tab.goto(`${env.adminURL}/#/`);
    tabs.push(tab);
  }
  for (const tab of tabs) await expect(tab.locator(pill)).toHaveText("live");
  const metrics = await (await fetch(`${env.adminURL}/metrics`)).text();
  expect(/^tierway_decisions_streams (\d+)$/m.exec(metrics)?.[1]).toBe("1");
  // A change in one tab appears in all.
  await admin("PATCH", "/admin/workers/small-1", { weight: 7 });
  for (const tab of tabs) await expect(tab.getByText(/live override/)).toBeVisible();
  await admin("DELETE", "/admin/overrides/small-1");
  for (const tab of tabs) await expect(tab.getByText(/live override/)).toHaveCount(0);
});

test("the overview shows traffic, trouble and its end", async ({ page }) => {
  await login(page);
  await send(40, "Say hello", { model: "demo-small-7b", stream: true });
  const row = page.getByRole("row", { name: /^small / });
  await expect(row).not.toContainText("–");
  await admin("POST", "/admin/workers/large-0/drain", {});
  await admin("POST", "/admin/workers/large-1/drain", {});
  await expect(page.locator(".attention")).toContainText("large");
  await expect(page.getByRole("row", { name: /^large / })).toContainText("drained");
  await admin("POST", "/admin/workers/large-0/undrain");
  await admin("POST", "/admin/workers/large-1/undrain");
  await expect(page.getByRole("row", { name: /^large / })).not.toContainText("drained");
});

test("the overview notes drains and weights of 0, and links to rejected requests", async ({ page }) => {
  await login(page);
  await admin("POST", "/admin/workers/small-0/drain", {});
  await admin("PATCH", "/admin/workers/small-1", { weight: 0 });
  const notes = page.locator(".attention li");
  await expect(notes.filter({ hasText: "small-0" })).toContainText(/Drain since .* by ops: no new requests/);
  await expect(notes.filter({ hasText: "small-1" })).toContainText(/Weight 0 since .* by ops: no new requests/);
  await admin("DELETE", "/admin/overrides/small-0");
  await admin("DELETE", "/admin/overrides/small-1");
  await expect(notes).toHaveCount(0);
  await page.getByRole("link", { name: /^rejected/ }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Decisions" })).toBeVisible();
  await expect(page.getByRole("combobox", { name: "Result" })).toHaveValue("refused");
});

import { admin, engine, env, expect, gateway, readConfig, send, test } from "../support.ts";

test("the page is served and sends no request to another origin", async ({ page, journal }) => {
  const response = await page.goto("/");
  expect(response?.status()).toBe(200);
  await expect(page).toHaveTitle(/Tierway/);
  expect(journal.requests).toContain(`${env.adminURL}/`);
});

test("the page works under a path prefix", async ({ page, journal }) => {
  const response = await page.goto(env.prefixURL);
  expect(response?.status()).toBe(200);
  await expect(page).toHaveTitle(/Tierway/);
  const outside = journal.requests.filter((url) => !url.startsWith(env.prefixURL) && !url.startsWith("data:"));
  expect(outside).toEqual([]);
});

test("a test case controls the gateway and its engines", async () => {
  const [answer] = await send(1, "Say hello");
  expect(answer?.status).toBe(200);
  await engine("small-0").stop();
  await expect
    .poll(async () => (await send(6, "Say hello")).every((a) => a.status === 200), { timeout: 10_000 })
    .toBe(true);
  await engine("small-0").start();
  await gateway.stop();
  await expect(admin("GET", "/admin/status")).rejects.toThrow();
  await gateway.start();
  await admin("GET", "/admin/status", undefined, env.viewerKey);
  expect(readConfig()).toContain("tiers:");
});

import { env, expect, test } from "../support.ts";

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

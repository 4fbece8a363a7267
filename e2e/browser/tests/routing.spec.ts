import type { Page } from "@playwright/test";
import { admin, decisionOf, engine, env, expect, expectAccessible, login, readConfig, send, setPolicy, test } from "../support.ts";

const model = "demo-small-7b";

async function explain(page: Page, prompt: string): Promise<void> {
  await page.getByRole("textbox", { name: /^Prompt/ }).fill(prompt);
  const explained = page.waitForResponse(/\/route\/explain$/);
  await page.getByRole("button", { name: /^Explain/ }).click();
  await explained;
  await expect(page.getByRole("button", { name: /^Explain/ })).toBeEnabled(); // the answer is shown
}

const answer = (page: Page) => page.getByRole("region", { name: "Explanation" });

test("the playground names the tier and worker that a real request then gets", async ({ page }) => {
  await setPolicy("rendezvous_hash"); // the prompt alone selects the worker; other policies draw between equal ones
  await login(page, env.adminKey, "/rules");
  for (const prompt of ["Say hello", "Prove step by step that the square root of 2 is irrational", "Write a Python function that sorts a list"]) {
    await explain(page, prompt);
    const worker = await answer(page).getByTestId("worker").textContent();
    const tier = (await answer(page).locator(".verdict strong").first().textContent()) ?? "";
    const [real] = await send(1, prompt, { maxTokens: 5 });
    expect(real!.headers.get("x-model-tier")).toBe(tier);
    expect(real!.headers.get("x-routed-to")).toBe(worker);
    expect(await decisionOf(real!)).toMatchObject({ tier, worker });
    const rows = await answer(page).getByRole("table", { name: "Candidates" }).getByRole("row").count();
    expect(rows).toBeGreaterThan(2); // the header and every candidate
    expect(await answer(page).getByRole("row", { name: /selected/ }).textContent()).toContain(worker!);
  }
  await expectAccessible(page);
});

test("the request and the draft stay when the page is left, and are stored nowhere", async ({ page }) => {
  await login(page, env.adminKey, "/rules");
  const pages = page.getByRole("navigation", { name: "Pages" });
  await page.getByRole("textbox", { name: /^Prompt/ }).fill("A confidential prompt");
  await page.getByLabel("Compare with an edited configuration").check();
  const draft = page.getByRole("textbox", { name: "Edited configuration" });
  await expect(draft).toHaveValue(/tiers:/);
  await draft.fill(`${await draft.inputValue()}# edited\n`);
  await pages.getByRole("link", { name: "Workers" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Workers" })).toBeVisible();
  await pages.getByRole("link", { name: "Tiers and rules" }).click();
  await expect(page.getByRole("textbox", { name: /^Prompt/ })).toHaveValue("A confidential prompt");
  await expect(draft).toHaveValue(/# edited/);
  const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href]));
  expect(stored).not.toContain("confidential");
});

test("the verdict is in view after Explain", async ({ page }) => {
  await login(page, env.adminKey, "/rules");
  await page.setViewportSize({ width: 1280, height: 500 });
  await explain(page, "Say hello");
  await page.getByRole("button", { name: /^Explain/ }).scrollIntoViewIfNeeded();
  await explain(page, "Write a Python function that sorts a list");
  await expect(answer(page).locator(".verdict")).toBeInViewport();
});

test("an edited configuration is compared, and nothing is applied", async ({ page }) => {
  const before = (await admin("GET", "/admin/config")).generation;
  await login(page, env.adminKey, "/rules");
  await page.getByLabel("Compare with an edited configuration").check();
  const draft = page.getByRole("textbox", { name: "Edited configuration" });
  await expect(draft).toHaveValue(/tiers:/);
  await draft.fill(`${await draft.inputValue()}classifier: { default: large }\n`);
  await explain(page, "Say hello");
  await expect(page.getByText(/The edited configuration changes .*tier/)).toBeVisible();
  await expect(page.getByRole("region", { name: "In force" }).locator(".verdict")).toContainText("small");
  await expect(page.getByRole("region", { name: "Edited", exact: true }).locator(".verdict")).toContainText("large");
  expect((await admin("GET", "/admin/config")).generation).toBe(before);
});

test("a draft with an error shows its line", async ({ page, journal }) => {
  journal.permit(/422/);
  await login(page, env.adminKey, "/rules");
  await page.getByLabel("Compare with an edited configuration").check();
  const draft = page.getByRole("textbox", { name: "Edited configuration" });
  await expect(draft).toHaveValue(/tiers:/);
  await draft.fill((await draft.inputValue()).replace("open_for", "open_fore"));
  await explain(page, "Say hello");
  await expect(page.getByRole("alert")).toContainText("open_fore");
});

test("the last decisions are replayed under an edited configuration", async ({ page }) => {
  await send(20, "Say hello", { maxTokens: 1 });
  await login(page, env.adminKey, "/rules?tab=replay");
  await page.getByRole("button", { name: "Replay", exact: true }).click();
  await expect(page.locator(".verdict", { hasText: /configuration in force reproduces/ })).toBeVisible();
  await page.getByLabel("Compare with an edited configuration").check();
  const draft = page.getByRole("textbox", { name: "Edited configuration" });
  await expect(draft).toHaveValue(/tiers:/);
  await draft.fill(`${await draft.inputValue()}classifier: { default: large }\n`);
  await page.getByRole("button", { name: "Replay", exact: true }).click();
  await expect(page.getByText(/would get another tier/)).toBeVisible();
  await expect(page.getByRole("row", { name: /small → large/ }).first()).toBeVisible();
});

test("a pasted curl command is explained without its key", async ({ page }) => {
  await login(page, env.adminKey, "/rules");
  await page.locator("summary", { hasText: "Paste a JSON body" }).click();
  await page
    .getByRole("textbox", { name: "JSON body or curl command" })
    .fill(`curl ${env.baseURL}/chat/completions -H 'Authorization: Bearer tw-pasted-secret' -H 'X-Model-Tier: large' -d '{"model":"auto","messages":[{"role":"user","content":"hi"}]}'`);
  await expect(page.getByText(/Authorization was dropped/)).toBeVisible();
  await page.getByRole("button", { name: "Explain" }).click();
  await expect(answer(page).locator(".verdict")).toContainText("large");
  expect(await page.content()).not.toContain("tw-pasted-secret");
});

test("a request appears within a second, with its attempts and their explanation", async ({ page }) => {
  await login(page, env.adminKey, "/decisions?tenant=acme");
  await expect(page.locator(".pill")).toHaveText("live");
  await setPolicy("rendezvous_hash"); // equal prompts get the same worker first
  const prompt = `Hello ${Math.random()}`;
  const [usual] = await send(1, prompt, { model });
  const failing = usual!.headers.get("x-routed-to")!;
  await engine(failing).fail({ kind: "status", status: 500, times: 1 });
  const [retried] = await send(1, prompt, { model });
  expect(retried!.status).toBe(200);
  const worker = retried!.headers.get("x-routed-to")!;
  expect(worker).not.toBe(failing);
  const newest = page.locator("tbody tr").first();
  await expect(newest).toContainText(`${failing} ✗ 500 → ${worker} ✓`);
  await expect(newest).toContainText(model);
  const attempts = (await decisionOf(retried!)).attempts.map((a: { worker: string; status: number }) => [a.worker, a.status]);
  expect(attempts).toEqual([[failing, 500], [worker, 200]]);
  await newest.getByRole("button").first().click();
  const drawer = page.getByRole("dialog", { name: "Request" });
  await expect(drawer.getByRole("heading", { name: /^Attempt/ })).toHaveText([
    `Attempt 1: ${failing} the worker answered 500`,
    `Attempt 2: ${worker} 200`,
  ]);
  await expect(drawer.getByRole("table", { name: "Candidates" }).first()).toContainText(failing);
  await expectAccessible(page, "dialog[open]");
  await drawer.getByRole("link", { name: "Explain" }).click();
  await expect(page.getByRole("heading", { level: 1, name: "Tiers and rules" })).toBeVisible();
  await expect(page.getByRole("region", { name: "Explanation" }).getByTestId("worker")).toBeVisible();
  await engine(failing).recover();
});

test("rejected requests are rows, and filters are in the address", async ({ page }) => {
  await login(page, env.adminKey, "/decisions");
  await send(1, "hello", { key: "tw-unknown" });
  await expect(page.getByRole("row", { name: /401/ }).first()).toBeVisible();
  await page.getByRole("row", { name: /401/ }).first().getByRole("button", { name: /401/ }).click();
  await expect(page).toHaveURL(/status=401/);
  await page.reload();
  await expect(page.getByRole("button", { name: "Remove the filter status" })).toBeVisible();
  await send(3, "hello"); // other requests do not appear
  await expect(page.getByRole("row", { name: /\b200\b/ })).toHaveCount(0);
  await page.getByRole("button", { name: "Remove the filter status" }).click();
  await expect(page.getByRole("row", { name: /\b200\b/ }).first()).toBeVisible();
});

test("a search for a status does not find ids", async ({ page }) => {
  await send(1, "hello");
  await send(1, "hello", { key: "tw-unknown" });
  await login(page, env.adminKey, "/decisions");
  await page.getByRole("searchbox", { name: "Search requests" }).fill("401");
  await expect(page.getByText("status 401")).toBeVisible();
  await expect(page.getByRole("row", { name: /401/ }).first()).toBeVisible();
  await expect(page.getByRole("row", { name: /\b200\b/ })).toHaveCount(0);
  await page.locator("tbody tr").first().getByRole("button").first().click();
  await expect(page.getByRole("dialog", { name: "Request" })).toContainText("Rejected: the API key is missing, malformed or unknown.");
});

test("the list pauses under the pointer and offers what is new", async ({ page }) => {
  await send(5, "hello");
  await login(page, env.adminKey, "/decisions");
  await expect(page.locator("tbody tr").nth(3)).toBeVisible();
  await page.locator("tbody tr").nth(1).hover();
  const before = await page.locator("tbody tr").first().textContent();
  await send(7, "hello");
  await expect(page.getByRole("button", { name: "7 new" })).toBeVisible();
  expect(await page.locator("tbody tr").first().textContent()).toBe(before);
  await page.getByRole("button", { name: "7 new" }).press("Enter"); // a pointer that leaves the row ends the pause itself
  await page.getByRole("heading", { level: 1 }).hover();
  await expect(page.getByRole("button", { name: /new$/ })).toHaveCount(0);
});

test("thousands of rows scroll with few of them in the document", async ({ page }) => {
  await send(600, "hello", { maxTokens: 1, atOnce: 16 });
  await login(page, env.adminKey, "/decisions");
  await expect(page.locator("tbody tr").first()).toBeVisible();
  for (let i = 0; i < 3; i++) {
    const older = page.getByRole("button", { name: "Load older" });
    if (await older.isVisible()) await older.click();
    await page.waitForTimeout(200);
  }
  expect(Number(await page.getByRole("table", { name: "Decisions" }).getAttribute("aria-rowcount"))).toBeGreaterThan(500);
  expect(await page.locator("tbody tr").count()).toBeLessThan(80);
  const box = page.getByRole("region", { name: "Decisions" });
  await box.evaluate((e) => e.scrollTo(0, 10_000));
  await expect(page.locator(`tr[aria-rowindex="${Math.round(10_000 / 29) + 2}"]`)).toBeVisible();
  expect(readConfig()).toContain("tiers:");
});

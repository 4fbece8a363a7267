import type { Page } from "@playwright/test";
import { admin, type Answer, engine, env, expect, expectAccessible, login, release, send, setPolicy, statusError, test } from "../support.ts";

const model = "demo-small-7b";

test.beforeEach(async () => {
  for (const o of (await admin("GET", "/admin/overrides")).items) await admin("DELETE", `/admin/overrides/${o.worker}`);
});

const row = (page: Page, worker: string) => page.locator(`tr[data-key="${worker}"]`);

/**
 * Requests in flight at once. No worker may be full: its share would go to the others. A worker has 16 places, and the
 * largest share is half.
 */
const atOnce = 12;

/** Returns the share of new requests that each worker of the tier small answers. */
async function shares(n: number): Promise<Record<string, number>> {
  const answers: Answer[] = [];
  let next = 0;
  const sendNext = async () => {
    while (next < n) answers.push(...(await send(1, `Question ${next++} of ${Math.random()}`, { model, maxTokens: 1 })));
  };
  await Promise.all(Array.from({ length: atOnce }, sendNext));
  const counts: Record<string, number> = {};
  for (const a of answers) {
    expect(a.status).toBe(200);
    const worker = a.headers.get("x-routed-to") ?? "";
    counts[worker] = (counts[worker] ?? 0) + 1;
  }
  return Object.fromEntries(Object.entries(counts).map(([w, c]) => [w, c / n]));
}

/** Fails unless the shares of 300 requests are the expected ones, within 0.08. */
async function expectShares(expected: Record<string, number>): Promise<void> {
  const real = await shares(300);
  for (const [worker, share] of Object.entries(expected)) {
    expect(Math.abs((real[worker] ?? 0) - share), `${worker}: ${JSON.stringify(real)}`).toBeLessThanOrEqual(0.08);
  }
}

test("a weight that is set by keyboard moves the share, and undo brings it back", async ({ page }) => {
  await setPolicy("weighted_round_robin"); // its shares are the weights; others also follow caches and latencies
  await login(page, env.adminKey, "/workers");
  const slider = page.getByRole("slider", { name: "Weight of small-0" });
  await slider.focus();
  await page.keyboard.press("ArrowRight");
  await expect(page.getByText("The weight of small-0 is 2.")).toBeVisible();
  await expect(slider).toBeFocused(); // live data arrives every second
  await expect(row(page, "small-0")).toContainText("override");
  await expect(row(page, "small-0")).toContainText("50 %"); // of 2 + 1 + 1
  expect((await admin("GET", "/admin/workers/small-0")).weights.effective).toBe(2);
  await expectShares({ "small-0": 0.5, "small-1": 0.25, "small-2": 0.25 });

  await page.getByRole("button", { name: "Undo" }).click();
  await expect.poll(async () => (await admin("GET", "/admin/workers/small-0")).weights.override).toBeUndefined();
  await expect(row(page, "small-0")).not.toContainText("override");
  await expectShares({ "small-0": 1 / 3, "small-1": 1 / 3, "small-2": 1 / 3 });
});

test("a held slider shows shares, stays where it is, and is saved once when let go", async ({ page }) => {
  await login(page, env.adminKey, "/workers");
  const slider = page.getByRole("slider", { name: "Weight of small-0" });
  await expect(row(page, "small-0")).toContainText("33 %");
  const previews: string[] = [];
  const changes: string[] = [];
  page.on("request", (r) => {
    if (r.method() === "PATCH") (r.url().includes("dry_run") ? previews : changes).push(r.postData()!);
  });
  const box = (await slider.boundingBox())!;
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + 8, y);
  await page.mouse.down();
  const begun = Date.now();
  for (let x = 9; x < 59; x++) await page.mouse.move(box.x + x, y);
  const value = await slider.inputValue();
  await expect(row(page, "small-1").locator(".previewed")).toHaveText(/^[1-4] %$/);
  await admin("PATCH", "/admin/workers/small-1", { weight: 2 }); // new data about another worker of the pool
  await admin("POST", "/admin/workers/small-1/drain", {}); // its state is wider than the column
  await expect(row(page, "small-1")).toContainText("override");
  await expect(row(page, "small-1")).toContainText("drained");
  expect(await slider.boundingBox()).toEqual(box);
  expect(await slider.inputValue()).toBe(value);
  expect(changes).toEqual([]);
  expect(previews.length).toBeLessThanOrEqual(2 + (Date.now() - begun) / 200);

  await page.mouse.move(box.x + 58, y + 200); // let go elsewhere
  await page.mouse.up();
  await expect(row(page, "small-0")).toContainText("override");
  const seen = new Set<string>();
  for (let i = 0; i < 15; i++) {
    seen.add(await slider.inputValue());
    await page.waitForTimeout(100); // older events must not move it
  }
  expect([...seen]).toEqual([value]);
  expect(changes).toEqual([JSON.stringify({ weight: Number(value) })]);
  await admin("POST", "/admin/workers/small-1/undrain");
});

test("a series of key presses is one change", async ({ page }) => {
  await login(page, env.adminKey, "/workers");
  const changes: string[] = [];
  page.on("request", (r) => r.method() === "PATCH" && !r.url().includes("dry_run") && changes.push(r.postData()!));
  await page.getByRole("slider", { name: "Weight of small-0" }).focus();
  await page.clock.install();
  await page.clock.pauseAt(Date.now() + 60_000); // no pause between the presses
  for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowRight");
  await page.clock.resume();
  await expect(page.getByText("The weight of small-0 is 6.")).toBeVisible();
  expect(changes).toEqual(['{"weight":6}']);
});

test("an undo restores the weight and its expiry, and keeps a drain that began since", async ({ page, journal }) => {
  journal.permit(statusError(412));
  const weights = async () => (await admin("GET", "/admin/workers/small-1")).weights;
  await admin("PATCH", "/admin/workers/small-1", { weight: 4, ttl_s: 600 });
  const until = Date.parse((await weights()).override.until);
  await login(page, env.adminKey, "/workers");
  await page.getByLabel("Override ends").selectOption("1h");
  const field = page.getByRole("textbox", { name: "Weight of small-1 as a number" });
  await field.fill("9");
  await field.press("Enter");
  await expect(page.getByText("The weight of small-1 is 9. The override ends after 1 hour.")).toBeVisible();
  await page.waitForTimeout(2000); // the expiry must not move by this time
  await page.getByRole("button", { name: "Undo" }).click();
  await expect.poll(async () => (await weights()).effective).toBe(4);
  expect(Math.abs(Date.parse((await weights()).override.until) - until)).toBeLessThan(1000);
  await expect(field).toHaveValue("4"); // the page has the answer

  await field.fill("8");
  await field.press("Enter");
  await expect(page.getByRole("button", { name: "Undo" })).toBeVisible();
  await admin("POST", "/admin/workers/small-1/drain", {});
  await page.getByRole("button", { name: "Undo" }).click();
  await expect(page.getByText("The weight of small-1 was not restored.")).toBeVisible();
  expect((await weights()).override.drain).toBe(true);
});

test("a reset to the file keeps a drain", async ({ page }) => {
  await admin("PATCH", "/admin/workers/small-2", { weight: 7 });
  await admin("POST", "/admin/workers/small-2/drain", {});
  await login(page, env.adminKey, "/workers?worker=small-2");
  await page.getByRole("button", { name: "Reset to file" }).click();
  await expect(page.getByText("small-2 has the weight 1 of config.yaml again.")).toBeVisible();
  const { override } = (await admin("GET", "/admin/workers/small-2")).weights;
  expect([override.drain, override.weight]).toEqual([true, undefined]);
});

test("a weight of 0 takes the worker out, with the share of real requests", async ({ page }) => {
  await login(page, env.adminKey, "/workers");
  const field = page.getByRole("textbox", { name: "Weight of small-1 as a number" });
  await field.fill("0");
  await expect(row(page, "small-0").locator(".previewed")).toHaveText("50 %"); // the preview, before anything is changed
  expect((await admin("GET", "/admin/workers/small-1")).weights.effective).toBe(1);
  await field.press("Enter");
  await expect(row(page, "small-1")).toContainText("no new requests");
  await expect.poll(async () => (await admin("GET", "/admin/workers/small-1")).weights.effective).toBe(0); // it is saved
  const now = await shares(60);
  expect(now["small-1"] ?? 0).toBe(0);
  expect((now["small-0"] ?? 0) + (now["small-2"] ?? 0)).toBe(1);
  await row(page, "small-1").getByRole("button", { name: "small-1", exact: true }).click();
  await expectAccessible(page, "dialog[open]");
  await page.getByRole("button", { name: "Reset to file" }).click();
  await expect.poll(async () => (await admin("GET", "/admin/workers/small-1")).weights.effective).toBe(1);
});

test("the last worker of a tier is taken out only after a warning", async ({ page }) => {
  await admin("PATCH", "/admin/workers/large-0", { weight: 0 });
  await login(page, env.adminKey, "/workers?pool=large");
  const field = page.getByRole("textbox", { name: "Weight of large-1 as a number" });
  await field.fill("0");
  await field.press("Enter");
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("no worker of large takes requests");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  expect((await admin("GET", "/admin/workers/large-1")).weights.effective).toBe(1);
  await expect(field).toHaveValue("1");
});

test("a change that another admin overtook is rejected, and the control snaps back", async ({ page, journal }) => {
  journal.permit(statusError(412));
  await login(page, env.adminKey, "/workers");
  const field = page.getByRole("textbox", { name: "Weight of small-0 as a number" });
  await field.fill("9");
  await page.route("**/admin/workers/small-0?*", async (route) => {
    await admin("PATCH", "/admin/workers/small-0", { weight: 4 }); // between the preview and the change
    await route.continue();
  });
  await field.press("Enter");
  await expect(row(page, "small-0").getByRole("alert")).toBeVisible();
  await expect(field).toHaveValue("4");
});

test("a drain shows its real progress, and fails no request", async ({ page }) => {
  await login(page, env.adminKey, "/workers?worker=small-0");
  await admin("PATCH", "/admin/workers/small-1", { weight: 0 });
  await admin("PATCH", "/admin/workers/small-2", { weight: 0 });
  const held = send(3, env.holdMark, { model, stream: true });
  const drawer = page.getByRole("dialog", { name: "small-0", exact: true });
  await expect(row(page, "small-0")).toContainText("3/16");
  await admin("DELETE", "/admin/overrides/small-1");
  await drawer.getByRole("button", { name: "Drain…" }).click();
  await page.getByRole("button", { name: "Drain", exact: true }).click();
  await expect(drawer).toContainText("3 of 3 requests left");
  expect((await shares(10))["small-1"]).toBe(1);
  await release();
  for (const answer of await held) {
    expect(answer.status).toBe(200);
    expect(answer.body).toContain("[DONE]");
  }
  await expect(drawer).toContainText("Drained.");
  await drawer.getByRole("button", { name: "Undrain" }).click();
  await expect(drawer).not.toContainText("Drained.");
});

test("a row drains its worker after the warnings, and ends the drain", async ({ page }) => {
  await admin("PATCH", "/admin/workers/large-0", { weight: 0 });
  await login(page, env.adminKey, "/workers?pool=large");
  await row(page, "large-1").getByRole("button", { name: "Drain…" }).click();
  const dialog = page.getByRole("dialog", { name: "Drain large-1" });
  await expect(dialog).toContainText("no worker of large takes requests");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await admin("DELETE", "/admin/overrides/large-0");
  await row(page, "large-1").getByRole("button", { name: "Drain…" }).click();
  await expect(dialog).toContainText("New requests go to the other workers; requests in flight finish here.");
  await dialog.getByRole("button", { name: "Drain", exact: true }).click();
  await expect(row(page, "large-1")).toContainText("drained");
  await row(page, "large-1").getByRole("button", { name: "Undrain" }).click();
  await expect(row(page, "large-1")).not.toContainText("drained");
});

test("an open breaker is shown with its cause", async ({ page }) => {
  await login(page, env.adminKey, "/workers");
  await engine("small-2").fail({ kind: "status", status: 500 });
  await shares(40);
  await expect(row(page, "small-2")).toContainText("breaker open");
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Overview" }).click();
  await expect(page.locator(".attention")).toContainText("small-2");
  await engine("small-2").recover();
});

test("a row stays where it is while the pointer is on it", async ({ page }) => {
  await login(page, env.adminKey, "/workers?sort=-load&pool=small");
  const names = () => page.locator("tbody tr td:first-child").allTextContents();
  await expect(row(page, "small-0")).toBeVisible();
  await row(page, "small-0").hover();
  const before = await names();
  await admin("PATCH", "/admin/workers/small-0", { weight: 0 });
  await admin("PATCH", "/admin/workers/small-1", { weight: 0 });
  const held = send(4, env.holdMark, { model, stream: true });
  await expect(row(page, "small-2")).toContainText("4/16");
  expect(await names()).toEqual(before);
  await page.getByRole("heading", { level: 1 }).hover();
  await expect.poll(async () => (await names())[0]).toBe("small-2");
  await release();
  await held;
});

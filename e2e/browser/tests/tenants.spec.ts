import type { Page } from "@playwright/test";
import { admin, assertSecretAbsent, env, expect, expectAccessible, gateway, login, send, statusError, test } from "../support.ts";

// Names are unique, because the database keeps the tenants of all test cases of this file.
let made = 0;
const unique = (name: string) => `${name}-${Date.now().toString(36)}-${made++}`;

async function secretOf(page: Page): Promise<string> {
  const secret = (await page.getByTestId("secret").textContent()) ?? "";
  expect(secret).toMatch(/^tw-/);
  return secret;
}

async function closeSecret(page: Page): Promise<void> {
  await page.getByLabel("I stored this key").check();
  await page.getByRole("button", { name: "Close", exact: true }).last().click();
}

async function status(key: string): Promise<number> {
  const [answer] = await send(1, "Say hello", { key });
  return answer!.status;
}

async function auditActions(target: string): Promise<string[]> {
  const log = await admin("GET", `/admin/audit?target=${target}&limit=200`);
  return log.items.map((e: { action: string; via: string }) => `${e.action} ${e.via}`);
}

test("a tenant is created, and its key works, rotates with overlap and is revoked", async ({ page }) => {
  const name = unique("team");
  await login(page, env.adminKey, "/tenants");
  await page.getByRole("button", { name: "Create tenant" }).click();
  await page.getByRole("dialog").getByLabel("Name", { exact: false }).first().fill(name);
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const first = await secretOf(page);
  await expectAccessible(page, "dialog[open]");
  await expect(page.getByRole("button", { name: "Copy key" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Copy command" })).toBeVisible();
  await expect(page.getByText("Waiting for the first request of this key…")).toBeVisible();
  await expect.poll(() => status(first)).toBe(200);
  await expect(page.getByText(/^First request: \d\d:\d\d:\d\d$/)).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByTestId("secret")).toBeVisible(); // not stored yet
  await closeSecret(page);
  await expect(page.getByTestId("secret")).toHaveCount(0);
  await assertSecretAbsent(page, first);

  await page.getByRole("button", { name, exact: true }).click();
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByRole("button", { name: "Rotate" }).click();
  await page.getByRole("slider").fill("2"); // an hour
  await page.getByRole("button", { name: "Create the new key" }).click();
  const second = await secretOf(page);
  await closeSecret(page);
  await expect.poll(() => status(second)).toBe(200);
  expect(await status(first)).toBe(200); // during the overlap
  await expect(page.getByRole("cell", { name: "grace", exact: true })).toBeVisible();

  for (const [key, row] of [[first, "grace"], [second, "active"]] as const) {
    await page.getByRole("row", { name: new RegExp(`\\b${row}\\b`) }).getByRole("button", { name: "Revoke" }).click();
    await page.getByLabel(/to confirm/).fill(name);
    await page.getByRole("button", { name: "Revoke key" }).click();
    await expect.poll(() => status(key)).toBe(401);
  }
  await assertSecretAbsent(page, second);
  const log = await gateway.log();
  expect(log).not.toContain(first);
  expect(log).not.toContain(second);
  expect(JSON.stringify(await admin("GET", "/admin/audit?limit=200"))).not.toContain(first);
});

test("a limit that is set on the page rejects requests", async ({ page }) => {
  const name = unique("limited");
  const { secret } = await admin("POST", "/admin/tenants", { name, issue_key: true });
  await login(page, env.adminKey, `/tenants?tenant=${name}`);
  const drawer = page.getByRole("dialog");
  await drawer.getByRole("textbox", { name: "Requests per minute" }).fill("2");
  await drawer.getByRole("textbox", { name: "Burst" }).first().fill("1");
  await drawer.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText(`The settings of ${name} were saved.`)).toBeVisible();
  await expect.poll(async () => (await send(3, "Say hello", { key: secret, atOnce: 1 })).map((a) => a.status)).toContain(429);
  await drawer.getByRole("textbox", { name: "Requests per minute" }).fill("");
  await drawer.getByRole("textbox", { name: "Burst" }).first().fill("");
  await drawer.getByRole("button", { name: "Save" }).click();
  await expect.poll(async () => (await send(3, "Say hello", { key: secret, atOnce: 1 })).map((a) => a.status)).not.toContain(429);
  expect(await auditActions(name)).toEqual(["tenant.update ui", "tenant.update ui", "tenant.create api"]);
});

test("wrong input is shown beside its field", async ({ page, journal }) => {
  journal.permit(statusError(409), statusError(422));
  const name = unique("twice");
  await admin("POST", "/admin/tenants", { name });
  await login(page, env.adminKey, "/tenants?tab=create");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: false }).first().fill(name);
  await dialog.getByRole("button", { name: "Create", exact: true }).click();
  await expect(dialog.getByText(/exists/).first()).toBeVisible();
  await dialog.getByText("Limits, permissions and behaviour").click();
  await dialog.getByText("Same with curl").click();
  expect(await dialog.evaluate((d) => d.scrollWidth - d.clientWidth)).toBe(0);
  await dialog.getByLabel("Requests per minute").fill("many");
  await expect(dialog.getByText(/enter a whole number/)).toBeVisible();
  await dialog.getByLabel("Requests per minute").fill("10k");
  await expect(dialog.getByText(/enter a whole number/)).toHaveCount(0);
});

test("a tenant is created by keyboard alone", async ({ page }) => {
  const name = unique("keys-only");
  await login(page, env.adminKey, "/tenants");
  await expect(page.getByRole("heading", { level: 1, name: "Tenants" })).toBeVisible();
  await page.keyboard.press("/");
  await expect(page.getByRole("searchbox")).toBeFocused();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog")).toBeVisible();
  await page.keyboard.type(name);
  await page.keyboard.press("Enter");
  const secret = await secretOf(page);
  await expect.poll(() => status(secret)).toBe(200);
});

test("markup in names is shown as text", async ({ page }) => {
  const name = unique("markup");
  await admin("POST", "/admin/tenants", { name, issue_key: true, key_name: "<img src=x onerror=alert(1)>" });
  await login(page, env.adminKey, `/tenants?tenant=${name}&tab=keys`);
  await expect(page.getByText("<img src=x onerror=alert(1)>")).toBeVisible();
  await expect(page.locator("img[src=x]")).toHaveCount(0);
});

test("a tenant is deleted after its name was typed", async ({ page }) => {
  const name = unique("gone");
  const { secret } = await admin("POST", "/admin/tenants", { name, issue_key: true });
  await expect.poll(() => status(secret)).toBe(200);
  await login(page, env.adminKey, `/tenants?tenant=${name}`);
  await page.getByRole("button", { name: "Delete tenant" }).click();
  const confirm = page.getByRole("dialog", { name: `Delete ${name}?` });
  await confirm.getByLabel(/to confirm/).fill("something else");
  await confirm.getByRole("button", { name: "Delete tenant" }).click();
  expect(await status(secret)).toBe(200);
  await confirm.getByLabel(/to confirm/).fill(name);
  await confirm.getByRole("button", { name: "Delete tenant" }).click();
  await expect.poll(() => status(secret)).toBe(401);
});

test("a tenant beyond the first page is found and opened by its name", async ({ page }) => {
  const name = unique("beyond");
  await admin("POST", "/admin/tenants", { name });
  await page.route(/\/admin\/tenants\?/, async (route) => {
    const answer = await route.fetch();
    const list = await answer.json();
    const searched = new URL(route.request().url()).searchParams.has("q");
    if (!searched) list.items = list.items.filter((t: { name: string }) => t.name !== name);
    await route.fulfill({ response: answer, json: list });
  });
  await login(page, env.adminKey, `/tenants?tenant=${name}`);
  await expect(page.getByRole("dialog", { name })).toBeVisible();
  await page.getByRole("button", { name: "Close" }).click();
  await expect(page.getByText("search a name to see others")).toBeVisible();
  await expect(page.getByRole("button", { name, exact: true })).toHaveCount(0);
  await page.getByRole("searchbox").fill(name);
  await expect(page.getByRole("button", { name, exact: true })).toBeVisible();
});

test("a key beyond the first page is found by its name", async ({ page }) => {
  const name = unique("many");
  await admin("POST", "/admin/tenants", { name });
  for (const key of ["usual", "far-away"]) await admin("POST", `/admin/tenants/${name}/keys`, { name: key });
  const many = (list: { name: string }[]) => {
    const usual = list.find((k) => k.name === "usual");
    return Array.from({ length: 1000 }, (_, i) => ({ ...usual, id: `key-${i}` }));
  };
  await page.route(/\/admin\/tenants(\?|\/)/, async (route) => {
    const url = new URL(route.request().url());
    const answer = await route.fetch();
    const json = await answer.json();
    if (url.pathname.endsWith("/keys") && !url.searchParams.has("q")) {
      json.items = many(json.items);
      json.total = 1001;
    }
    for (const t of [json, ...(json.items ?? [])]) if (t.name === name && t.key_list) t.key_list = many(t.key_list);
    await route.fulfill({ response: answer, json });
  });
  await login(page, env.adminKey, `/tenants?tenant=${name}&tab=keys`);
  await expect(page.getByText("1,000 of 1,001 keys")).toBeVisible();
  await expect(page.getByRole("cell", { name: /far-away/ })).toHaveCount(0);
  await page.getByRole("searchbox", { name: "Search keys" }).fill("far");
  await expect(page.getByRole("cell", { name: /far-away/ })).toBeVisible();
  await expect(page.getByRole("cell", { name: /usual/ })).toHaveCount(0);
});

import { admin, env, expect, login, readConfig, send, setPolicy, test, writeConfig } from "../support.ts";

test("a reload applies what its preview showed", async ({ page }) => {
  const before = readConfig();
  writeConfig(before.replace("rpm: 100000", "rpm: 90000"));
  await login(page, env.adminKey, "/config?tab=reload");
  const change = page.getByRole("row", { name: /limits\.rpm/ });
  await expect(change).toContainText("100000");
  await expect(change).toContainText("90000");
  await expect(change).toContainText("at once");
  await page.getByRole("button", { name: "Apply 1 change", exact: true }).click();
  await expect(page.getByText(/^Reloaded: 1 change/)).toBeVisible();
  await expect(page.getByText("No changes.")).toBeVisible();
  const tenants = await admin("GET", "/admin/tenants");
  expect(tenants.items.find((t: { name: string }) => t.name === "acme").limits.rpm).toBe(90_000);
});

test("a preview shows the removed worker and the affinity that moves, and the reload ends its requests", async ({ page }) => {
  const text = await setPolicy("chwbl"); // the policy under which prompts have homes
  // Returns the workers of 40 requests with different homes.
  const workers = async () => {
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, i) => send(1, `Question ${i} of ${Math.random()}`, { model: "demo-medium-32b", maxTokens: 1 })),
    );
    expect(answers.map(([a]) => a!.status)).toEqual(answers.map(() => 200));
    return new Set(answers.map(([a]) => a!.headers.get("x-routed-to")));
  };
  expect([...(await workers())].sort()).toEqual(["medium-0", "medium-1"]);
  writeConfig(text.split("\n").filter((line) => !line.includes("name: medium-1")).join("\n"));
  await login(page, env.adminKey, "/config?tab=reload");
  await expect(page.getByText("Workers removed")).toBeVisible();
  await expect(page.getByRole("definition").filter({ hasText: "medium-1" })).toBeVisible();
  await expect(page.getByText(/% of the prompts of medium/)).toBeVisible();
  await page.getByRole("button", { name: /^Apply/ }).click();
  await expect(page.getByText(/^Reloaded: /)).toBeVisible();
  expect([...(await workers())]).toEqual(["medium-0"]);
});

test("an invalid file changes nothing, and shows its lines instead of an older preview", async ({ page, journal }) => {
  journal.permit(/422/);
  const text = readConfig();
  writeConfig(text.replace("rpm: 100000", "rpm: 90000"));
  await login(page, env.adminKey, "/config?tab=reload");
  await expect(page.getByRole("button", { name: "Apply 1 change" })).toBeVisible();
  writeConfig(text.replace("max_inflight: 16", "max_inflite: 16"));
  await page.getByRole("button", { name: "Read the file again" }).click();
  const line = text.split("\n").findIndex((l) => l.includes("max_inflight: 16")) + 1;
  await expect(page.getByRole("listitem").filter({ hasText: /max_inflite/ }).first()).toHaveText(new RegExp(`^\\s*line ${line}: `));
  await expect(page.getByRole("button", { name: /^Apply/ })).toHaveCount(0);
  await expect(page.getByRole("row", { name: /limits\.rpm/ })).toHaveCount(0);
});

test("weights can be written into the file, and drains cannot", async ({ page }) => {
  await admin("PATCH", "/admin/workers/small-0", { weight: 3 });
  await admin("POST", "/admin/workers/small-1/drain", {});
  await login(page, env.adminKey, "/config?tab=overrides");
  await expect(page.getByRole("group", { name: "Weights for the file" })).toContainText("add weight: 3 to small-0 in the file");
  await expect(page.getByText("A drain has no place in the file.")).toBeVisible();
  await page.getByRole("button", { name: "Undrain" }).click();
  await expect(page.getByText("A drain has no place in the file.")).toHaveCount(0);
  await page.getByRole("button", { name: "Reset to file" }).click();
  await expect(page.getByText("No overrides.")).toBeVisible();
});

test("a pasted configuration is validated with marked lines", async ({ page }) => {
  await login(page, env.adminKey, "/config?tab=validate");
  const text = readConfig();
  const line = text.split("\n").findIndex((l) => l.includes("consecutive_failures")) + 1;
  await page.getByRole("textbox", { name: "Configuration" }).fill(text.replace("consecutive_failures", "consecutive_failurs"));
  await page.getByRole("button", { name: "Validate the text" }).click();
  await expect(page.getByRole("button", { name: `line ${line}` })).toBeVisible();
  await expect(page.locator(".marked")).toContainText("consecutive_failurs");
  await page.getByRole("textbox", { name: "Configuration" }).fill(text);
  await page.getByRole("button", { name: "Validate the text" }).click();
  await expect(page.getByText("valid", { exact: true })).toBeVisible();
});

test("values show their origin, and secrets stay hidden", async ({ page }) => {
  await admin("PATCH", "/admin/workers/small-0", { weight: 5 });
  await login(page, env.adminKey, "/config?q=small-0");
  await expect(page.getByText("override by ops").first()).toBeVisible();
  await page.getByRole("searchbox").fill("open_for");
  await expect(page.getByRole("link", { name: /^file:\d+$/ }).first()).toBeVisible();
  await page.getByRole("link", { name: /^file:\d+$/ }).first().click();
  await expect(page.locator(".marked")).toContainText("open_for");
  const digest = /sha256: ([0-9a-f]{64})/.exec(readConfig())![1]!;
  await expect(page.getByText(digest)).toHaveCount(0);
  await page.getByRole("link", { name: "Overrides" }).click();
  await page.getByRole("button", { name: "Reset to file" }).click();
  await expect(page.getByText("No overrides.")).toBeVisible();
  expect((await admin("GET", "/admin/workers/small-0")).weights.effective).toBe(1);
});

test("every change has one entry in the audit log, which is verified", async ({ page }) => {
  const before = (await admin("GET", "/admin/audit?limit=1")).items[0]?.id ?? 0;
  await admin("PATCH", "/admin/workers/small-0", { weight: 2 });
  await admin("DELETE", "/admin/overrides/small-0");
  await login(page, env.adminKey, "/audit?target=small-0");
  const after = await admin("GET", "/admin/audit?limit=200&target=small-0");
  expect(after.items.filter((e: { id: number }) => e.id > before)).toHaveLength(2);
  await expect(page.getByRole("row", { name: /small-0/ }).first()).toBeVisible();
  await page.getByRole("button", { name: "Verify the log" }).click();
  await expect(page.getByText(/entries, none changed/)).toBeVisible();
});

test("a link to an audit entry opens it, although the list does not have it", async ({ page }) => {
  await admin("PATCH", "/admin/workers/small-0", { weight: 2 });
  await admin("DELETE", "/admin/overrides/small-0");
  const { id } = (await admin("GET", "/admin/audit?limit=1")).items[0];
  await login(page, env.adminKey, `/audit?target=no-such-target&entry=${id}`);
  await expect(page.getByText("No entry matches.")).toBeVisible();
  const drawer = page.getByRole("dialog");
  await expect(drawer.getByRole("heading")).toContainText("small-0");
  await drawer.getByRole("button", { name: "Close" }).click();
  await expect(page).not.toHaveURL(/entry=/);
  await login(page, env.adminKey, `/audit?entry=${id + 1000}`);
  await expect(page.getByRole("dialog")).toContainText(`Entry ${id + 1000} does not exist.`);
});

test("a filter of the audit log applies on Enter or without the focus, not at each key", async ({ page }) => {
  await admin("PATCH", "/admin/workers/small-0", { weight: 2 });
  await admin("DELETE", "/admin/overrides/small-0");
  await admin("PATCH", "/admin/workers/small-1", { weight: 2 });
  await admin("DELETE", "/admin/overrides/small-1");
  await login(page, env.adminKey, "/audit");
  await expect(page.getByRole("row", { name: /small-1/ }).first()).toBeVisible();
  const reads: string[] = [];
  page.on("request", (r) => r.url().includes("/admin/audit?") && reads.push(new URL(r.url()).searchParams.get("target") ?? ""));
  const filter = page.getByRole("searchbox", { name: "Filter by target" });
  await filter.pressSequentially("small-0");
  await filter.press("Enter");
  await expect(page).toHaveURL(/target=small-0/);
  await expect(page.getByRole("row", { name: /small-1/ })).toHaveCount(0);
  await expect(page.getByRole("row", { name: /small-0/ }).first()).toBeVisible();
  await expect(filter).toBeFocused();
  await filter.fill("small-1");
  await page.getByRole("heading", { level: 1 }).click();
  await expect(page.getByRole("row", { name: /small-1/ }).first()).toBeVisible();
  expect(reads.filter((target) => target !== "small-0" && target !== "small-1")).toEqual([]);
});

import { admin, assertSecretAbsent, env, expect, expectAccessible, gateway, login, readConfig, send, statusError, test, writeConfig } from "../support.ts";

test("a key opens a session that no script can read, and the logout ends it on the server", async ({ page, context, journal }) => {
  journal.permit(statusError(401));
  await page.goto("/");
  await expectAccessible(page);
  await page.getByLabel("Admin key").fill("tw-adm-wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await expect(page.getByRole("alert")).toContainText(/key/);
  await page.getByLabel("Admin key").fill(env.adminKey);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
  await assertSecretAbsent(page, env.adminKey);
  const [cookie] = await context.cookies();
  expect(cookie).toMatchObject({ name: `tierway_session_${new URL(env.adminURL).port}`, httpOnly: true, sameSite: "Strict", path: "/" });
  expect(await page.evaluate(() => document.cookie)).toBe("");
  expect(await gateway.log()).not.toContain(env.adminKey);

  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page.getByLabel("Admin key")).toBeVisible();
  const answer = await fetch(`${env.adminURL}/admin/tenants`, { headers: { cookie: `${cookie!.name}=${cookie!.value}` } });
  expect(answer.status).toBe(401);
});

test("a deep link survives the login", async ({ page }) => {
  await page.goto("/#/tenants?q=acme");
  await page.getByLabel("Admin key").fill(env.adminKey);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Tenants" })).toBeVisible();
  await expect(page.getByRole("searchbox")).toHaveValue("acme");
});

test("a viewer sees every page with its content", async ({ page }) => {
  await admin("PATCH", "/admin/workers/small-0", { weight: 2 }); // an entry of the audit log
  await admin("DELETE", "/admin/overrides/small-0");
  await send(1, "Say hello");
  const contents: [path: string, content: string | RegExp][] = [
    ["/", "medium"],
    ["/tenants", "acme"],
    ["/workers", "small-2"],
    ["/rules", "medium"],
    ["/rules?tab=report", "No labels."],
    ["/decisions", "acme"],
    ["/metrics", /requests/i],
    ["/config?tab=reload", "No changes."],
    ["/audit", "small-0"],
    ["/clients", "demo-small-7b"],
  ];
  for (const [path, content] of contents) {
    await login(page, env.viewerKey, path);
    await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
    await expect(page.locator("main")).toContainText(content);
    await expect(page.locator(".skeleton")).toHaveCount(0);
    await expect(page.getByText("Not permitted.")).toHaveCount(0);
  }
});

test("a viewer changes nothing", async ({ page, journal }) => {
  journal.permit(statusError(403));
  const before = JSON.stringify(await admin("GET", "/admin/overrides"));
  await login(page, env.viewerKey, "/tenants");
  await expect(page.getByRole("button", { name: "Create tenant" })).toBeDisabled();
  await expect(page.getByRole("button", { name: "Create tenant" })).toHaveAttribute("title", /viewer/);
  writeConfig(readConfig().replace("rpm: 100000", "rpm: 90000"));
  await login(page, env.viewerKey, "/config?tab=reload");
  await expect(page.getByRole("button", { name: "Apply 1 change" })).toBeDisabled();
  await login(page, env.viewerKey, "/workers");
  await expect(page.getByRole("slider").first()).toBeVisible();
  for (const slider of await page.getByRole("slider").all()) await expect(slider).toBeDisabled();
  const refused = await page.evaluate(async () => {
    const change = { method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"weight":7}' };
    return (await fetch("./admin/workers/small-0", change)).status;
  }).catch(() => 0);
  expect(refused).toBe(403);
  expect(JSON.stringify(await admin("GET", "/admin/overrides"))).toBe(before);
});

test("a request of another site changes nothing", async ({ page, context }) => {
  await login(page);
  const cookie = (await context.cookies())[0]!;
  const foreign: Record<string, string>[] = [{ "sec-fetch-site": "cross-site" }, { origin: "https://evil.example" }];
  for (const headers of foreign) {
    const answer = await fetch(`${env.adminURL}/admin/workers/small-0/drain`, {
      method: "POST",
      headers: { cookie: `${cookie.name}=${cookie.value}`, "content-type": "application/json", ...headers },
      body: "{}",
    });
    expect(answer.status).toBe(403);
  }
});

test("the session of a deleted admin ends", async ({ page, journal }) => {
  journal.permit(statusError(401));
  const made = await admin("POST", "/admin/admins", { name: `temp-${Date.now()}`, role: "admin" });
  await login(page, made.secret);
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  await admin("DELETE", `/admin/admins/${made.admin.id}`);
  await expect(page.getByLabel("Admin key")).toBeVisible();
});

test("the page has strict security headers", async () => {
  const answer = await fetch(`${env.adminURL}/`);
  const csp = answer.headers.get("content-security-policy") ?? "";
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]) {
    expect(csp).toContain(part);
  }
  expect(csp).not.toContain("unsafe");
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
  expect(answer.headers.get("referrer-policy")).toBe("no-referrer");
  expect(answer.headers.get("x-frame-options")).toBe("DENY");
});

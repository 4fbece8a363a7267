// The helpers find what the other files rely on them to find.

import type { Page } from "@playwright/test";
import {
  assertSecretAbsent,
  engine,
  env,
  expect,
  expectAccessible,
  gateway,
  admin,
  readConfig,
  release,
  send,
  startDemo,
  test,
  writeConfig,
} from "../support.ts";

/** Serves a page with the strict policy of the UI in place of the gateway's. */
async function serve(page: Page, body: string): Promise<void> {
  await page.route(`${env.adminURL}/`, (route) =>
    route.fulfill({
      headers: { "content-security-policy": "default-src 'self'" },
      contentType: "text/html",
      body: `<!doctype html><html lang="en"><title>Tierway</title><main>${body}</main></html>`,
    }),
  );
  await page.goto("/");
}

test("axe-core runs under a strict policy and finds violations", async ({ page }) => {
  await serve(page, "<h1>Workers</h1><label>Filter <input></label>");
  await expectAccessible(page);
  await serve(page, "<h1>Workers</h1><input>");
  await expect(expectAccessible(page)).rejects.toThrow(/label/);
});

test("a secret is found in fields, text and storage", async ({ page }) => {
  const secret = "a-secret-of-this-test";
  await serve(page, "<h1>Keys</h1><label>Key <input></label>");
  await assertSecretAbsent(page, secret);
  await page.getByLabel("Key").fill(secret);
  await expect(assertSecretAbsent(page, secret)).rejects.toThrow(/a field/);
  await page.getByLabel("Key").fill("");
  await page.evaluate((value) => sessionStorage.setItem("draft", `the key ${value}`), secret);
  await expect(assertSecretAbsent(page, secret)).rejects.toThrow(/sessionStorage/);
  await page.evaluate(() => sessionStorage.clear());
  await assertSecretAbsent(page, secret);
});

test("the journal has errors, violations of the policy and requests to other origins", async ({ page, journal }) => {
  await serve(page, "<h1>Overview</h1>");
  expect(journal.unexpectedErrors()).toEqual([]);
  await page.evaluate(() => {
    document.body.append(Object.assign(document.createElement("img"), { src: "http://example.com/a.png" }));
    setTimeout(() => {
      throw new Error("thrown by the page");
    });
  });
  await expect.poll(() => journal.unexpectedErrors().join()).toMatch(/Content Security Policy/);
  await expect.poll(() => journal.unexpectedErrors().join()).toMatch(/thrown by the page/);
  expect(journal.foreignRequests()).toEqual(["http://example.com/a.png"]);
  journal.permit(/Content Security Policy/, /thrown by the page/);
  journal.permitOrigin("http://example.com");
});

test("held answers stay in flight until their release", async () => {
  const inflight = async () => {
    const { workers } = await admin("GET", "/admin/workers");
    return workers.reduce((sum: number, worker: any) => sum + worker.inflight, 0);
  };
  const held = send(3, env.holdMark);
  await expect.poll(inflight).toBe(3);
  await release();
  expect((await held).map((a) => a.status)).toEqual([200, 200, 200]);
});

test("an engine with faults is ejected", async () => {
  await engine("small-2").fail({ kind: "status", status: 500 });
  const breaker = async () => {
    await send(8, "Say hello");
    return (await admin("GET", "/admin/workers/small-2")).breaker.state;
  };
  await expect.poll(breaker).toBe("open");
});

test("the gateway stops and starts, and a changed file is applied", async () => {
  await gateway.stop();
  await expect(admin("GET", "/admin/status")).rejects.toThrow();
  await gateway.start();
  writeConfig(readConfig().replace("keep: 2000", "keep: 1999"));
  await admin("POST", "/admin/reload");
  expect(JSON.stringify(await admin("GET", "/admin/config"))).toContain("1999");
});

test("each test case begins with the original file", async () => {
  expect(JSON.stringify(await admin("GET", "/admin/config"))).not.toContain("1999");
});

test("the demo has addresses and keys of its own", async () => {
  const demo = await startDemo();
  const response = await fetch(`${demo.base_url}/models`, { headers: { authorization: `Bearer ${demo.api_key}` } });
  expect(response.status).toBe(200);
});

// A gateway whose operators' listener asks for keys (--admin-keys): what is shown to nobody, and every page to whoever has signed in.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { open_browser, open_page, picture } from "./browser.mjs";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pelton-admin-keys-"));
const model = path.resolve("one");
const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const kAnn = { Authorization: "Bearer key-of-ann" };
const kFirst = "This gateway shows its pages to operators";
// What a page has once its data are there.
const kSettled = { fleet: "only-0", scaling: "only", requests: "only", routing: "Message", splits: "only", health: "Memory", configuration: "[gateway]" };
let browser;
let gateway;
let said = "";

before(async () => {
  browser = await open_browser();
  const keys = path.join(folder, "keys");
  fs.writeFileSync(keys, "key-of-ann ann role=admin\nkey-of-otto otto role=operate\nkey-of-vera vera role=view\n");
  const file = path.join(folder, "gateway.toml");
  fs.writeFileSync(file, `[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
keys_file = "${keys}"

[[pool]]
name = "only"
model = "one"

[pool.scale]
min = 1
max = 1

[pool.launch]
serve = ["${model}", "--executor", "modelled:${path.resolve("script.json")}"]
start_seconds = 1

[[route]]
model = "one"
to = [{pool = "only"}]
`);
  const child = spawn(process.env.PELTON, ["gateway", "--config", file, "--with-autoscaler", "--admin-keys"], { stdio: ["ignore", "pipe", "pipe"] });
  gateway = { child, over: new Promise((resolve) => child.on("exit", resolve)) };
  child.stderr.on("data", (data) => { said += data; });
  let out = "";
  for await (const data of child.stdout) {
    out += data;
    if (/^admin on .*\n/m.test(out)) break;
  }
  gateway.admin = out.match(/^admin on (.*)$/m)?.[1];
  assert.ok(gateway.admin, said);
  for (let i = 0; i < 300; ++i) {
    const { workers } = await (await fetch(gateway.admin + "/v1/workers", { headers: kAnn })).json();
    if (workers.some((one) => one.state === "ready")) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert.fail("a worker, please: " + said);
});
after(async () => {
  await browser.close();
  gateway.child.kill("SIGTERM");
  await gateway.over;
  fs.rmSync(folder, { recursive: true });
});

const shows = (page, text) => page.waitForFunction((wanted) => document.querySelector("main").innerText.includes(wanted), text, { timeout: 15000 });
const text_of = (page) => page.locator("main").innerText();
async function sign_in(page, key) {
  await page.locator("main").getByRole("button", { name: "Sign in" }).click();
  await page.getByLabel("Operator's key").fill(key);
  await page.keyboard.press("Enter");
}
async function clean({ page, seen, context }) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing is wider than the page");
  assert.deepEqual([seen.errors, seen.foreign, seen.hits], [[], [], 0]);
  await context.close();
}

test("nobody who has not signed in is shown anything, whatever page he names", async () => {
  for (const name of Object.keys(kSettled)) {
    const opened = await open_page(browser, `${gateway.admin}/console#${name}`);
    await shows(opened.page, kFirst);
    await opened.page.waitForTimeout(500);
    assert.equal(await opened.page.locator("main table, main textarea").count(), 0, name);
    await clean(opened); // and nothing was asked for that is refused
  }
});

test("every page is there for whoever has signed in, without a refusal", async () => {
  for (const viewport of [{ width: 1440, height: 900 }, { width: 390, height: 844 }]) {
    const opened = await open_page(browser, gateway.admin + "/console", { viewport });
    const { page, seen, context } = opened;
    await shows(page, kFirst);
    await picture(page, `admin-keys-${viewport.width}`);
    const client = await context.newCDPSession(page);
    await client.send("Runtime.evaluate", { expression: axe });
    const { result } = await client.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
      expression: "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id))" });
    assert.deepEqual(result.value, []);
    await sign_in(page, "key-of-ann");
    await shows(page, kSettled.fleet);
    const names = await page.locator("nav a").evaluateAll((all) => all.map((one) => one.hash.slice(1)).filter(Boolean));
    assert.deepEqual(names, Object.keys(kSettled), "each page of the console");
    for (const name of names) {
      await page.evaluate((to) => { location.hash = to; }, name);
      await shows(page, kSettled[name]);
      await page.waitForTimeout(2500); // and once more where a page asks again
      assert.doesNotMatch(await text_of(page), /could not be loaded|operator's key|API key/, name);
      assert.deepEqual(seen.errors, [], name);
    }
    await page.evaluate(() => { location.hash = "routing"; });
    await page.getByLabel("Model").fill("one");
    await page.getByLabel("Message").fill("Why there?");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.locator(".fact dt", { hasText: /^Pool$/ }).waitFor();
    await page.reload();
    await page.getByRole("button", { name: "Explain" }).waitFor(); // the session lasts
    await clean(opened);
  }
});

test("the cookie is the whole console's, and no other page's", async () => {
  const opened = await open_page(browser, gateway.admin + "/console#health");
  const { page, context } = opened;
  await sign_in(page, "key-of-ann");
  await shows(page, kSettled.health);
  const [cookie] = await context.cookies();
  assert.deepEqual([cookie.path, cookie.httpOnly, cookie.sameSite], ["/", true, "Strict"]);
  // For pages of this host's other ports a browser sends the cookie along.
  const status = async (headers) => (await fetch(gateway.admin + "/v1/workers", { headers: { Cookie: `${cookie.name}=${cookie.value}`, ...headers } })).status;
  assert.deepEqual([await status({}), await status({ "Sec-Fetch-Site": "same-origin" })], [200, 200]);
  assert.deepEqual([await status({ "Sec-Fetch-Site": "same-site" }), await status({ Origin: "http://127.0.0.1:1" })], [401, 401]);
  await clean(opened);
});

test("a session that has ended takes the pages away, of a stream at once", async () => {
  const opened = await open_page(browser, gateway.admin + "/console#fleet");
  const { page, context } = opened;
  await sign_in(page, "key-of-ann");
  await shows(page, kSettled.fleet);
  const second = await context.newPage();
  await second.goto(gateway.admin + "/console#configuration");
  await shows(second, kSettled.configuration);
  await second.locator(".who-signed-in").click();
  await second.getByRole("button", { name: "Sign out everywhere" }).click();
  await shows(second, kFirst);
  await shows(page, kFirst);
  opened.seen.errors = opened.seen.errors.filter((text) => !/401/.test(text)); // the stream's
  await sign_in(page, "key-of-ann");
  await shows(page, kSettled.fleet);
  await clean(opened);
});

test("a key of a lesser role is answered with what is wanted", async () => {
  const opened = await open_page(browser, gateway.admin + "/console");
  const { page } = opened;
  for (const key of ["key-of-vera", "key-of-otto"]) {
    await sign_in(page, key);
    await page.getByText("only a key with role=admin signs in here").waitFor();
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.querySelector("dialog"));
  }
  await shows(page, kFirst);
  opened.seen.errors = opened.seen.errors.filter((text) => !/403/.test(text));
  await clean(opened);
});

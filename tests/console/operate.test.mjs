// A gateway's console that commands: sign-in with an operator's key, what may be done then, and what is refused without.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { open_browser, open_page, picture } from "./browser.mjs";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pelton-operate-"));
const model = path.resolve("one");
const script = path.resolve("script.json");
const keys = path.join(folder, "keys");
const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
let browser;
let gateway;
let said = "";

const write_keys = (...lines) => {
  fs.writeFileSync(keys + ".new", lines.join("\n") + "\n");
  fs.renameSync(keys + ".new", keys);
};
before(async () => {
  browser = await open_browser();
  write_keys("key-of-ann ann role=admin", "key-of-bob bob");
  const file = path.join(folder, "gateway.toml");
  fs.writeFileSync(file, `[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
keys_file = "${keys}"
rollouts_file = "${path.join(folder, "rollouts.json")}"

[[pool]]
name = "before"
model = "split"

[[pool]]
name = "next"
model = "split"

[[route]]
model = "split"
to = [{pool = "before"}, {pool = "next"}]

[route.rollout]
arm = "next"
steps = [10, 100]
min_requests = 5
min_seconds = 60

[[pool]]
name = "scripted"
model = "one"

[pool.scale]
min = 2
max = 2

[pool.launch]
serve = ["${model}", "--executor", "modelled:${script}"]
start_seconds = 1
`);
  const child = spawn(process.env.PELTON, ["gateway", "--config", file, "--with-autoscaler"], { stdio: ["ignore", "pipe", "pipe"] });
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
    if ((await workers()).filter((one) => one.state === "ready").length === 2) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert.fail("two workers, please: " + said);
});
after(async () => {
  await browser.close();
  gateway.child.kill("SIGTERM");
  await gateway.over;
  fs.rmSync(folder, { recursive: true });
});

const json = async (url) => (await fetch(url)).json();
const workers = async () => (await json(gateway.admin + "/v1/workers")).workers.sort((a, b) => (a.name < b.name ? -1 : 1));
const state_of = async (name) => (await json(`${gateway.admin}/v1/workers/${name}`)).state;
async function until(holds, what) {
  for (let i = 0; i < 100; ++i) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(what + "\n" + said);
}

async function open_fleet(options = {}) {
  const opened = await open_page(browser, gateway.admin + "/console#fleet", options);
  await opened.page.waitForFunction(() => document.querySelectorAll("tbody tr").length >= 2);
  return opened;
}
async function sign_in(page, key) {
  await page.click(".who-signed-in");
  await page.getByLabel("Operator's key").fill(key);
  await page.keyboard.press("Enter");
}
async function open_signed_in(options = {}) {
  const opened = await open_fleet(options);
  await sign_in(opened.page, "key-of-ann");
  await opened.page.waitForSelector("td.does button");
  return opened;
}
const reads = () => said.match(/read anew/g)?.length ?? 0;
const buttons = (page) => page.locator("td.does button").count();
async function clean({ page, seen, context }) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing is wider than the page");
  assert.deepEqual([seen.errors, seen.foreign, seen.hits], [[], [], 0]);
  await context.close();
}

test("without a sign-in there is nothing to command, and the server refuses it", async () => {
  const opened = await open_fleet();
  const { page } = opened;
  assert.equal(await buttons(page), 0);
  assert.equal(await page.locator("th.does").isVisible(), false);
  const [one] = await workers();
  const tried = (url, headers = {}) => page.evaluate(async ([to, more]) => (await fetch(to, { method: "POST", headers: more })).status, [url, headers]);
  assert.equal(await tried(`console/workers/${one.name}/drain`), 401);
  assert.equal(await tried(`console/workers/${one.name}/drain`, { "X-Pelton-Token": "0".repeat(64) }), 401);
  assert.equal(await tried(`v1/workers/${one.name}/drain`), 403);
  assert.equal(await state_of(one.name), "ready");
  assert.match(said, new RegExp(`audit: nobody from 127.0.0.1: drain ${one.name}: refused: not signed in`));
  opened.seen.errors.length = 0; // refusals are errors to a browser
  await clean(opened);
});

test("a key that is no operator's signs nobody in", async () => {
  const opened = await open_fleet();
  const { page } = opened;
  for (const key of ["key-of-bob", "no-key"]) {
    await page.click(".who-signed-in");
    await page.getByLabel("Operator's key").fill(key);
    await page.keyboard.press("Enter");
    await page.getByText("This is no operator's key.").waitFor();
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.querySelector("dialog"));
  }
  assert.equal(await buttons(page), 0);
  opened.seen.errors = opened.seen.errors.filter((text) => !/401/.test(text));
  await clean(opened);
});

test("by the keyboard alone: sign in, drain a worker, let it take requests again, sign out", async () => {
  const opened = await open_fleet();
  const { page, context } = opened;
  const press = (...all) => all.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  const tab_to = async (text) => {
    for (let i = 0; i < 40 && (await focused()) !== text; ++i) await press("Tab");
    assert.equal(await focused(), text);
  };
  await tab_to("Sign in");
  await press("Enter");
  await page.keyboard.type("key-of-ann");
  await press("Enter");
  await page.waitForSelector("td.does button");
  assert.equal(await page.locator(".who-signed-in").textContent(), "ann");
  const [cookie] = await context.cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path, cookie.secure], [true, "Strict", "/", false]);
  assert.ok(Math.abs(cookie.expires - Date.now() / 1000 - 43200) < 300);
  assert.equal(await page.evaluate(() => document.cookie), "");
  assert.deepEqual(await page.evaluate(() => [localStorage.length + sessionStorage.length]), [0]);

  const [one] = await workers();
  await tab_to("Drain");
  await press("Enter");
  await page.getByRole("dialog", { name: `Drain ${one.name}?` }).waitFor();
  assert.equal(await focused(), "Cancel", "what does nothing comes first");
  await press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog"));
  assert.equal(await state_of(one.name), "ready");
  assert.equal(await focused(), "Drain", "the focus is where it was");
  await press("Enter", "Shift+Tab");
  assert.equal(await focused(), "Drain");
  await press("Enter");
  await until(async () => (await state_of(one.name)) === "draining", "it drains");
  await page.waitForFunction(() => [...document.querySelectorAll("td.does button")].some((it) => it.textContent === "Undrain"));
  assert.match(said, new RegExp(`audit: ann from 127.0.0.1: drain ${one.name}: done`));
  assert.match(said, /audit: ann from 127.0.0.1: signed in/);
  await page.waitForFunction((name) => [...document.querySelectorAll("td")].some((it) => it.textContent === `drain ${name}`), one.name);
  assert.equal(await focused(), "Undrain", "the focus is at what stands there now");

  await tab_to("Undrain");
  await press("Enter");
  await page.getByRole("dialog").waitFor();
  await press("Shift+Tab", "Enter");
  await until(async () => (await state_of(one.name)) === "ready", "it is ready");

  await page.reload();
  await page.waitForSelector("td.does button");
  await tab_to("ann");
  await press("Enter");
  await tab_to("Sign out");
  await press("Enter");
  await page.waitForFunction(() => !document.querySelector("td.does button"));
  assert.deepEqual(await context.cookies(), []);
  await clean(opened);
});

test("eject and restore", async () => {
  const opened = await open_signed_in();
  const { page } = opened;
  const [one] = await workers();
  const row = page.locator("tr", { has: page.getByText(one.name, { exact: true }) }).first();
  for (const [label, state] of [["Eject", "ejected"], ["Restore", "ready"]]) {
    await row.getByRole("button", { name: label }).click();
    await page.getByRole("dialog").getByRole("button", { name: label }).click();
    await until(async () => (await state_of(one.name)) === state, state);
    await page.waitForFunction(() => !document.querySelector("dialog"));
  }
  await clean(opened);
});

test("a roll-out shows its steps, and whoever has signed in takes it back", async () => {
  const opened = await open_page(browser, gateway.admin + "/console#splits");
  const { page } = opened;
  await page.getByText("Roll-out next: arm next").waitFor();
  assert.ok(await page.getByText("It has no conversations while its pool takes no requests.").isVisible());
  const steps = () => page.locator("[aria-label='Steps of the roll-out'] tbody tr").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
  assert.deepEqual(await steps(), [["10 %", "now", "0 of 5 requests, 0 of 60 s"], ["100 %", "ahead", ""]]);
  const take_back = page.getByRole("button", { name: "Take back" });
  assert.equal(await take_back.count(), 0, "nobody has signed in");
  assert.equal((await fetch(gateway.admin + "/console/rollouts/next/rollback", { method: "POST" })).status, 401);
  await sign_in(page, "key-of-ann");
  await take_back.click();
  await page.getByRole("dialog").getByRole("button", { name: "Take back" }).click();
  await page.getByText("Taken back: it gets no conversations. Operator: at 10 %: an operator said so.").waitFor();
  assert.equal(await take_back.count(), 0);
  assert.deepEqual((await steps()).map((row) => row[1]), ["off", "off"]);
  assert.equal((await json(gateway.admin + "/v1/rollouts/next")).phase, "taken_back");
  await until(() => /audit: ann from .*: rollback next: done/.test(said), "a line of the audit");
  await clean(opened);
});

test("who has signed in must bring the token along, from the console's own page", async () => {
  const opened = await open_signed_in();
  const { page, context } = opened;
  const [one] = await workers();
  const url = `${gateway.admin}/console/workers/${one.name}/drain`;
  const [cookie] = await context.cookies();
  const { token } = await page.evaluate(async () => (await fetch("console/session")).json());
  const tried = async (more, method = "POST") => (await fetch(url, { method, headers: { Cookie: `${cookie.name}=${cookie.value}`, "X-Pelton-Token": token, ...more } })).status;
  assert.equal(await tried({ "X-Pelton-Token": "" }), 403);
  assert.equal(await tried({ "Sec-Fetch-Site": "cross-site" }), 403);
  assert.equal(await tried({ "Sec-Fetch-Site": "same-site" }), 403);
  assert.equal(await tried({ Origin: "http://evil.example" }), 403);
  assert.equal(await tried({ Cookie: `${cookie.name}=${"0".repeat(64)}` }), 401);
  assert.equal(await tried({}, "GET"), 405);
  assert.equal(await state_of(one.name), "ready");
  // A form of another site's page: the browser sends no cookie along, and says whose page it is.
  const foreign = await context.newPage();
  await foreign.route("http://evil.example/", (route) => route.fulfill({ contentType: "text/html", body: `<form method=post action="${url}"><button>go</button></form>` }));
  await foreign.goto("http://evil.example/");
  const [answer] = await Promise.all([foreign.waitForResponse(url), foreign.click("button")]);
  assert.equal(answer.status(), 403);
  await foreign.close();
  assert.equal(await state_of(one.name), "ready");
  assert.equal(await tried({}), 200);
  assert.equal(await state_of(one.name), "draining");
  assert.equal((await fetch(`${gateway.admin}/v1/workers/${one.name}/undrain`, { method: "POST" })).status, 200);
  await clean(opened);
});

test("a session that ended elsewhere leaves no commands on the page", async () => {
  const opened = await open_signed_in();
  const { page, context } = opened;
  const second = await context.newPage();
  await second.goto(gateway.admin + "/console#fleet");
  await second.locator(".who-signed-in").click();
  await second.getByRole("button", { name: "Sign out", exact: true }).click();
  await second.getByRole("button", { name: "Sign in" }).waitFor();
  assert.ok(await page.locator("td.does button").count() > 0, "as long as nobody looks");
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.waitForFunction(() => document.querySelectorAll("td.does button").length === 0);
  assert.equal(await page.locator(".who-signed-in").textContent(), "Sign in");
  await clean(opened);
});

test("of two tabs both command after one has signed in anew; another operator's sign-in commands nothing for the first", async () => {
  const before = reads();
  write_keys("key-of-ann ann role=admin", "key-of-bob bob", "key-of-dora dora role=admin");
  await until(async () => reads() > before, "the file is read");
  const opened = await open_signed_in();
  const { page, context } = opened;
  const second = await context.newPage();
  await second.goto(gateway.admin + "/console#fleet");
  await second.waitForSelector("td.does button");
  const again = async (key) => {
    assert.equal((await second.evaluate(async (body) => (await fetch("console/session", { method: "POST", body })).status, JSON.stringify({ key }))), 200);
  };
  const [one] = await workers();
  const row = page.locator("tr", { has: page.getByText(one.name, { exact: true }) }).first();
  const command = async (label) => {
    await row.getByRole("button", { name: label }).click();
    await page.getByRole("dialog").getByRole("button", { name: label }).click();
  };
  await again("key-of-ann");
  await command("Drain");
  await until(async () => (await state_of(one.name)) === "draining", "the first tab commands");
  await page.waitForFunction(() => !document.querySelector("dialog"));
  await again("key-of-dora");
  await command("Undrain");
  await page.getByText("In another tab dora has signed in since. Nothing was done.").waitFor();
  assert.equal(await state_of(one.name), "draining");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".who-signed-in").textContent(), "dora");
  await command("Undrain");
  await until(async () => (await state_of(one.name)) === "ready", "in the name that the page shows");
  assert.match(said, new RegExp(`audit: dora from 127.0.0.1: undrain ${one.name}: done`));
  await second.close();
  opened.seen.errors = opened.seen.errors.filter((text) => !/403/.test(text));
  await clean(opened);
});

test("looked at", async () => {
  for (const [width, viewport] of Object.entries({ 1440: { width: 1440, height: 900 }, 390: { width: 390, height: 844 } })) {
    for (const colorScheme of ["light", "dark"]) {
      const opened = await open_signed_in({ viewport, colorScheme });
      const { page, context } = opened;
      await picture(page, `operate-${width}-${colorScheme}`);
      const client = await context.newCDPSession(page);
      await client.send("Runtime.evaluate", { expression: axe });
      const violations = async () => (await client.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
        expression: "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ' ' + v.nodes.map((n) => n.html).join(' ')))" })).result.value;
      assert.deepEqual(await violations(), [], `${width} ${colorScheme}`);
      await page.locator("td.does button").first().click();
      await page.getByRole("dialog").waitFor();
      await picture(page, `operate-dialog-${width}-${colorScheme}`);
      assert.deepEqual(await violations(), [], `dialog ${width} ${colorScheme}`);
      await page.keyboard.press("Escape");
      await clean(opened);
    }
  }
});

test("a name that somebody has bound to this address is not answered, and no page frames this one", async () => {
  const status = (host) => new Promise((resolve, reject) => {
    http.get(gateway.admin + "/console", { headers: { Host: host } }, (answer) => { answer.resume(); resolve(answer.statusCode); }).on("error", reject);
  });
  const { host } = new URL(gateway.admin);
  assert.equal(await status(host), 200);
  assert.ok([403, 421].includes(await status("evil.example")), String(await status("evil.example")));
  assert.ok([403, 421].includes(await status(host.replace("127.0.0.1", "evil.example"))));
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route("http://evil.example/", (route) => route.fulfill({ contentType: "text/html", body: `<iframe src="${gateway.admin}/console"></iframe>` }));
  await page.goto("http://evil.example/");
  await page.waitForTimeout(1000);
  assert.deepEqual(page.frames().map((frame) => frame.url()), ["http://evil.example/", "chrome-error://chromewebdata/"], "it is not shown");
  await context.close();
});

test("names that are hostile stay text, where one is asked about them, too", async () => {
  const opened = await open_signed_in();
  const { page } = opened;
  const name = "<img src=x onerror=hit(1)>/../{name}";
  const row = { name, pool: "<b>p</b>", address: "http://10.0.0.1:1", state: "ready", reason: "", kind: "pelton", zone: "", region: "", version: "", slots: 8, running: 0,
    waiting: 0, kv_used: 0, requests: 0, failures: 0 };
  const line = { n: 1, at: Date.now(), who: "<i>who</i>", from: "<u>from</u>", what: "drain", target: name, result: "<s>done</s>" };
  await page.route("**/console/fleet", (route) => route.fulfill({ contentType: "text/event-stream",
    body: `id: 9\ndata: ${JSON.stringify({ n: 9, samples: [{ n: 9, at: Date.now() }], tables: { workers: { all: true, rows: [row] }, commands: { all: true, rows: [line] } } })}\n\n` }));
  for (const hidden of [true, false]) {
    await page.evaluate((now) => {
      Object.defineProperty(document, "hidden", { value: now, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  }
  await page.waitForFunction(() => [...document.querySelectorAll("td")].some((cell) => cell.textContent === "<b>p</b>"));
  await page.getByRole("button", { name: "Drain" }).click();
  assert.equal(await page.locator("dialog h2").textContent(), `Drain ${name}?`);
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await page.locator("dialog .wrong:not(:empty)").waitFor();
  assert.equal(await page.locator("img, b, i, u, s").count(), 0);
  opened.seen.errors.length = 0; // no such worker; the stream of the route ends at once, again and again
  await clean(opened);
});

test("a key that is taken away ends its sessions", async () => {
  const opened = await open_signed_in();
  const { page } = opened;
  const before = reads();
  write_keys("key-of-carol carol role=admin", "key-of-bob bob");
  await until(async () => reads() > before, "the file is read");
  await page.locator("td.does button").first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await page.getByText("Nobody is signed in here any more").waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await buttons(page), 0);
  opened.seen.errors = opened.seen.errors.filter((text) => !/401/.test(text));
  await clean(opened);
});

test("guessing is throttled", async () => {
  const body = (key) => ({ method: "POST", body: JSON.stringify({ key }) });
  const seen = [];
  for (let i = 0; i < 100; ++i) seen.push((await fetch(gateway.admin + "/console/session", body("guess-" + i))).status);
  assert.ok(seen.filter((status) => status === 401).length <= 6, String(seen));
  const refused = await fetch(gateway.admin + "/console/session", body("key-of-carol"));
  assert.equal(refused.status, 429);
  assert.ok(Number(refused.headers.get("Retry-After")) > 0);
});

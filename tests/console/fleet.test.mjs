// The pages Fleet, Scaling and Requests at a gateway's and an autoscaler's own listeners, with replicas that come, are lost and go: each number beside
// what the API says at the same time.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { answered, ask, full, open_browser, open_page, picture, sizes } from "./browser.mjs";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pelton-console-"));
const model = path.resolve("one");
const script = path.resolve("script.json");
const running = [];
let browser;
let gateway;
let loading = true;
let load;

// A verb that prints where it listens, each address behind its name.
async function start(verb, config, ...flags) {
  const file = path.join(folder, `${verb}-${running.length}.toml`);
  fs.writeFileSync(file, config);
  const child = spawn(process.env.PELTON, [verb, "--config", file, ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  const one = { child, file, over: new Promise((resolve) => child.on("exit", resolve)) };
  running.push(one);
  let said = "";
  child.stderr.on("data", (data) => { said += data; });
  let out = "";
  const wanted = config.includes("admin = ") && verb === "gateway" ? /^admin on (.*)\n/m : /^listening on (.*)\n/m;
  for await (const data of child.stdout) {
    out += data;
    if (wanted.test(out)) break;
  }
  assert.match(out, wanted, said);
  one.url = out.match(/^listening on (.*)$/m)[1];
  one.admin = out.match(wanted)[1];
  return one;
}
async function stop(one) {
  one.child.kill("SIGTERM");
  await one.over;
}

const pool = (name, scale) => `
[[pool]]
name = "${name}"
model = "one"

[pool.scale]
window = 6
${scale}

[pool.launch]
serve = ["${model}", "--executor", "modelled:${script}", "--max-num-seqs", "4"]
start_seconds = 1
`;
const head = (state) => `[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n\n[autoscaler]\nstate_dir = "${folder}/${state}"\n`;

async function lane() {
  while (loading) {
    const answer = await fetch(gateway.url + "/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model: "one", messages: [{ role: "user", content: "long " + Math.random() }], max_tokens: 400 }) });
    await answer.text();
  }
}
before(async () => {
  browser = await open_browser();
  gateway = await start("gateway", head("state") + pool("scripted", "min = 1\nmax = 3\nconcurrency_target = 2"), "--with-autoscaler", "--console", "all");
  load = Promise.all([lane(), lane(), lane(), lane(), lane()]);
});
after(async () => {
  loading = false;
  await load;
  await browser.close();
  for (const one of running) await stop(one);
  fs.rmSync(folder, { recursive: true });
});

const json = async (url) => (await fetch(url)).json();
async function page_of(name, options = {}, one = gateway) {
  const opened = await open_page(browser, `${one.admin}/console#${name}`, options);
  await opened.page.waitForSelector(name === "scaling" ? ".pool .fact" : ".live-now .fact");
  return opened;
}
async function clean({ page, seen, context }) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing is wider than the page");
  assert.deepEqual([seen.errors, seen.foreign, seen.hits], [[], [], 0]);
  await context.close();
}
const cells = (page) => page.locator("tbody tr").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent.replace(/\u202f/g, ""))));
// Until the page says what the API says, both of one moment: numbers of a load change between the two.
async function agrees(shown, said) {
  let last;
  for (let i = 0; i < 60; ++i) {
    last = [await shown(), await said()];
    try {
      return assert.deepEqual(...last);
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  assert.deepEqual(...last);
}

test("a fleet that scales, at each size and in each colour", full, async () => {
  // Five requests at a time, two for a replica: three replicas.
  const { page, context } = await page_of("scaling");
  await page.waitForFunction(() => document.querySelectorAll(".panel tbody tr").length >= 1, null, { timeout: 60000 });
  await page.waitForFunction(() => [...document.querySelectorAll(".pool .fact")].some((one) => /^ready[23]$/.test(one.textContent)), null, { timeout: 60000 });
  await context.close();
  for (const [width, viewport] of Object.entries(sizes)) {
    for (const colorScheme of ["light", "dark"]) {
      for (const name of ["fleet", "scaling", "requests"]) {
        const opened = await page_of(name, { viewport, colorScheme });
        await opened.page.waitForFunction(() => [...document.querySelectorAll(".plot")].every((plot) => plot.querySelector("path.curve")));
        await picture(opened.page, `${name}-${width}-${colorScheme}`);
        for (const label of await opened.page.locator(".plot").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")))) {
          assert.match(label, /: .+ /);
        }
        await clean(opened);
      }
    }
  }
});

test("a worker that is lost is seen, and so is the one in its place", full, async () => {
  const opened = await page_of("fleet");
  const { page } = opened;
  const workers = (await json(gateway.admin + "/v1/workers")).workers;
  const before = (await json(gateway.admin + "/v1/autoscaler")).pools[0];
  const pids = fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)).filter((pid) => {
    try {
      const words = fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return words.includes("serve") && words.includes(workers[0].name) && words.includes(model);
    } catch {
      return false;
    }
  });
  assert.equal(pids.length, 1, String(pids));
  process.kill(Number(pids[0]), "SIGKILL");
  await page.click("nav a[href='#scaling']");
  const lost = (text) => page.waitForFunction((wanted) => [...document.querySelectorAll(".pool .fact")].some((one) => one.textContent === wanted), text, { timeout: 60000 });
  await lost(`Lost${before.lost + 1}`);
  await page.click("nav a[href='#fleet']");
  await page.waitForFunction(() => document.querySelectorAll("td[data-mark=ready]").length >= 2, null, { timeout: 60000 });
  await clean(opened);
});

test("each number is the API's", async () => {
  const opened = await page_of("fleet");
  const { page } = opened;
  await page.waitForFunction(() => document.querySelectorAll("td[data-mark=ready]").length >= 1, null, { timeout: 60000 });
  await agrees(async () => (await cells(page)).map((row) => [row[0], row[1], row[2], row[3].split(" / ")[1], row[7], row[10]]),
    async () => (await json(gateway.admin + "/v1/workers")).workers.sort((a, b) => (a.name < b.name ? -1 : 1)).map((one) => [
      one.name, one.pool, one.state + (one.reason ? ": " + one.reason : ""), String(one.slots), String(one.failures), one.address]));
  loading = false;
  await load; // what comes now stands still
  await agrees(async () => (await cells(page)).map((row) => [row[3].split(" / ")[0], row[4], row[6]]),
    async () => (await json(gateway.admin + "/v1/workers")).workers.sort((a, b) => (a.name < b.name ? -1 : 1)).map((one) => [
      String(one.running), String(one.waiting), String(one.requests)]));
  await page.click("nav a[href='#requests']");
  await page.waitForSelector("tbody tr");
  const metrics = async () => (await fetch(gateway.admin + "/metrics")).text();
  const counted = (text, outcome) => String([...text.matchAll(new RegExp(`^pelton_gateway_requests_total{[^}]*outcome="${outcome}"} (\\d+)`, "gm"))]
    .reduce((sum, match) => sum + Number(match[1]), 0));
  await agrees(async () => (await cells(page))[0],
    async () => { const text = await metrics(); return ["scripted", ...["ok", "client_error", "error", "left"].map((one) => counted(text, one)), "0"]; });
  assert.ok(Number((await cells(page))[0][1]) > 0);
  await page.click("nav a[href='#scaling']");
  await agrees(async () => [await page.locator(".why:visible").textContent(),
    ...await page.locator(".pool > .facts .fact dd").evaluateAll((all) => all.slice(1, 5).map((one) => one.textContent))],
  async () => { const one = (await json(gateway.admin + "/v1/autoscaler")).pools[0];
    return [one.decision, ...[one.desired, one.ready, one.starting, one.draining + one.stopping].map(String)]; });
  await page.locator("summary").click();
  await page.waitForFunction(() => /rate_fast/.test(document.querySelector("details").textContent));
  await clean(opened);
});

test("clients of the gateway chat, and read what models there are", full, async () => {
  const opened = await open_page(browser, gateway.url + "/console");
  const { page } = opened;
  await page.waitForSelector(".composer");
  await ask(page, "Hello");
  await answered(page);
  assert.equal((await page.locator(".turn:last-child .markdown").textContent()).trim(), "Short.");
  await page.click("nav a[href='#models']");
  await page.waitForSelector(".facts");
  assert.match(await page.locator("article").textContent(), /one/);
  assert.equal(await page.locator(".state.wrong").count(), 0);
  opened.seen.errors = opened.seen.errors.filter((text) => !/404/.test(text)); // a gateway has no model cards
  await clean(opened);
  assert.equal((await fetch(gateway.url + "/console/fleet")).status, 404, "that is for operators");
  assert.equal((await fetch(gateway.url + "/console", { method: "POST" })).status, 405);
  const admin = await open_page(browser, gateway.admin + "/console");
  assert.equal(await admin.page.locator("nav a", { hasText: "Chat" }).getAttribute("href"), gateway.url + "/console");
  await admin.context.close();
});

test("an autoscaler of its own has the page Scaling and no other", full, async () => {
  const one = await start("autoscale", head("apart").replace("[autoscaler]\n", `[autoscaler]\nlisten = "127.0.0.1:0"\ngateways = ["${gateway.admin}"]\n`)
    + pool("other", "min = 0\nmax = 2"), "--advise");
  const opened = await page_of("scaling", {}, one);
  assert.deepEqual(await opened.page.locator("nav a").allTextContents(), ["Scaling"]);
  assert.equal(await opened.page.locator(".pool h2").textContent(), "other");
  await clean(opened);
  await stop(one);
});

test("a pool of two roles has a panel of each, and each worker's role is said", full, async () => {
  const key = path.join(folder, "fleet.key");
  assert.equal(spawnSync(process.env.PELTON, ["gateway", "--new-key", key]).status, 0);
  const one = await start("gateway", head("roles").replace("[gateway]\n", `[gateway]\nfleet_key_file = "${key}"\n`)
    + pool("two", 'min = 1\nmax = 3\npolicy = "slo"\nttft = 0.5\nitl = 0.1').replace('model = "one"\n', `model = "one"\ntokenizer = "${model}"\nsplit = "always"\n`)
      .replace(`"--executor", "modelled:${script}"`, '"--threads", "1", "--device", "cpu", "--kv-cache-memory", "16MiB", "--swap-space", "16MiB"'), "--with-autoscaler");
  for (const [width, viewport] of Object.entries(sizes)) {
    const opened = await page_of("scaling", { viewport }, one);
    const { page } = opened;
    assert.deepEqual(await page.locator(".pool h2").allTextContents(),
      ["two: replicas that go on with answers (decode)", "two: replicas that compute prompts (prefill)"]);
    await page.waitForFunction(() => [...document.querySelectorAll(".pool .fact")].filter((fact) => fact.textContent === "ready1").length === 2, null, { timeout: 60000 });
    await picture(page, `roles-scaling-${width}`);
    await page.click("nav a[href='#fleet']");
    await page.waitForFunction(() => document.querySelectorAll("td[data-mark=ready]").length === 2, null, { timeout: 60000 });
    await agrees(async () => (await cells(page)).map((row) => row[1]).sort(), async () => ["two, decode", "two, prefill"]);
    await picture(page, `roles-fleet-${width}`);
    await clean(opened);
  }
  await stop(one);
});

test("a thousand workers whose names are hostile stay a table", full, async () => {
  const zone = (i) => ["<img src=x onerror=hit(1)>", "\u202Eevil", "a".repeat(200), "z1"][i % 4];
  const workers = Array.from({ length: 1000 }, (_, i) => `[[worker]]\npool = "far"\nurl = "http://127.0.0.1:${2 + i % 1000}"\n`).join("");
  const one = await start("gateway", `[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n\n[[pool]]\nname = "far"\nmodel = "one"\n${workers}`);
  const opened = await page_of("fleet", {}, one);
  const { page } = opened;
  await page.getByRole("button", { name: "Show all 1" }).click();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1000);
  // As the stream would bring them, if workers said so of themselves.
  const rows = Array.from({ length: 1000 }, (_, i) => ({ name: `w${i}`, pool: "<b>p</b>", address: `http://10.0.0.1:${i}`, state: i % 2 ? "ready" : "down", reason: zone(i),
    kind: "pelton", zone: zone(i), region: zone(i + 1), version: zone(i + 2), slots: 8, running: i % 8, waiting: null, kv_used: null, requests: i * 1000, failures: 0 }));
  await page.route("**/console/fleet", (route) => route.fulfill({ contentType: "text/event-stream",
    body: `id: 9\ndata: ${JSON.stringify({ n: 9, samples: [{ n: 9, at: Date.now() }], tables: { workers: { all: true, rows } } })}\n\n` }));
  for (const hidden of [true, false]) {
    await page.evaluate((now) => {
      Object.defineProperty(document, "hidden", { value: now, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  }
  await page.waitForFunction(() => [...document.querySelectorAll("tbody td")].some((cell) => cell.textContent === "<b>p</b>"));
  assert.equal(await page.locator("main img, main b").count(), 0);
  await page.getByLabel("Only those with").fill("w99");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 11);
  assert.match(await page.locator("main").textContent(), /11 of 1\u202f000 workers/);
  opened.seen.errors.length = 0; // the stream of the route ends at once, again and again
  await clean(opened);
  await stop(one);
});

test("outdated replicas are named on the page Scaling, and what becomes of them", full, async () => {
  const opened = await page_of("scaling");
  const { page } = opened;
  const row = { ...(await json(gateway.admin + "/v1/autoscaler")).pools[0] };
  for (const [rolls, says] of [[false, "roll = true"], [true, "one by one"]]) {
    await page.unroute("**/console/fleet");
    await page.route("**/console/fleet", (route) => route.fulfill({ contentType: "text/event-stream",
      body: `id: 9\ndata: ${JSON.stringify({ n: 9, samples: [{ n: 9, at: Date.now() }],
        tables: { scaling: { all: true, rows: [{ ...row, rolls, outdated: { "<b>a</b>": "other --max-num-seqs" } }] } } })}\n\n` }));
    for (const hidden of [true, false]) {
      await page.evaluate((now) => {
        Object.defineProperty(document, "hidden", { value: now, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    }
    await page.waitForFunction((text) => [...document.querySelectorAll(".pool .why")].some((one) => one.textContent.includes(text)), says);
  }
  assert.match(await page.locator(".pool").first().textContent(), /Outdated replicas, 1: <b>a<\/b> \(other --max-num-seqs\)/);
  assert.equal(await page.locator("main b").count(), 0);
  opened.seen.errors.length = 0; // the stream of the route ends at once, again and again
  await clean(opened);
});

test("the page commands nothing, and streams are its own only", full, async () => {
  const feed = gateway.admin + "/console/fleet";
  assert.equal((await fetch(feed, { headers: { "Sec-Fetch-Site": "cross-site" } })).status, 403);
  assert.equal((await fetch(feed, { method: "POST" })).status, 405);
  const worker = (await json(gateway.admin + "/v1/workers")).workers[0];
  const { page, context } = await page_of("fleet");
  assert.equal(await page.evaluate(async (name) => (await fetch(`v1/workers/${name}/drain`, { method: "POST" })).status, worker.name), 403);
  assert.notEqual((await json(gateway.admin + `/v1/workers/${worker.name}`)).state, "draining");
  await context.close();
});

test("nothing serious for axe-core", full, async () => {
  const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
  for (const name of ["fleet", "scaling", "requests"]) {
    for (const colorScheme of ["light", "dark"]) {
      const { page, context } = await page_of(name, { colorScheme });
      const client = await context.newCDPSession(page);
      await client.send("Runtime.evaluate", { expression: axe });
      const { result } = await client.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
        expression: "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ' ' + v.nodes.map((n) => n.html).join(' ')))" });
      assert.deepEqual(result.value, [], `${name} ${colorScheme}`);
      await context.close();
    }
  }
});

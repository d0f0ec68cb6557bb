// The page Live of the operator's listener, beside what /metrics says, under a load of this test's.
import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, test } from "node:test";
import { base, full, looks, open_browser, open_page, picture } from "./browser.mjs";

const admin = process.env.ADMIN_URL;
const headers = { Authorization: "Bearer " + process.env.API_KEY, "Content-Type": "application/json" };
let browser;
let loading = true;
let load;

// Answers one after the other in three lanes, until the test is over.
async function lane(model) {
  while (loading) {
    const answer = await fetch(base + "/v1/chat/completions", { method: "POST", headers,
      body: JSON.stringify({ model, messages: [{ role: "user", content: "long " + Math.random() }], max_tokens: 400 }) });
    await answer.text();
  }
}
before(async () => {
  browser = await open_browser();
  load = Promise.all([lane("one"), lane("one"), lane("two")]);
});
after(async () => {
  loading = false;
  await load;
  await browser.close();
});

async function live_page(options) {
  const opened = await open_page(browser, admin + "/console", options);
  await opened.page.waitForSelector(".live-now .fact");
  return opened;
}
const figure = async (page, name) => (await page.locator(".live-now .fact", { hasText: name }).locator("dd").textContent()).replace(/\u202f/g, "");
const metric = async (name) => [...(await (await fetch(admin + "/metrics")).text()).matchAll(new RegExp(`^${name}{[^}]*} ([0-9.e+-]+)$`, "gm"))]
  .reduce((sum, match) => sum + Number(match[1]), 0);

test("figures and curves under a load, at each size and in each colour", async () => {
  for (const [width, viewport, colorScheme] of looks) {
    const { page, seen, context } = await live_page({ viewport, colorScheme });
    // Three answers are always on their way, on the page and in the metrics.
    await page.waitForFunction(() => [...document.querySelectorAll(".live-now .fact")].some((one) => /running/.test(one.textContent) && /[1-3]$/.test(one.textContent)));
    assert.ok(await metric("vllm:num_requests_running") <= 3);
    assert.ok(Number(await figure(page, "Tokens/s, output")) > 0);
    assert.match(await figure(page, "Time to first token"), /\d/);
    // No plot is empty but for hits, of which a minute may have none.
    await page.waitForFunction(() => document.querySelectorAll(".plot path.line-0").length >= 6);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    assert.equal(wide, false, "nothing is wider than the page");
    for (const label of await page.locator(".plot").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")))) {
      assert.match(label, /: .+ /);
    }
    await picture(page, `live-${width}-${colorScheme}`);
    assert.deepEqual([seen.errors, seen.foreign], [[], []]);
    assert.equal(await page.locator("nav a", { hasText: "Chat" }).getAttribute("href"), base + "/console");
    await context.close();
  }
});

test("what was missed while the server was away comes later, and none twice", full, async () => {
  const { page, context } = await live_page();
  let asked = [];
  await page.route("**/console/live", (route) => {
    asked.push(Number(route.request().headers()["last-event-id"]));
    return asked.length === 1 ? route.abort() : route.continue();
  });
  // As a tab that is hidden and shown again.
  for (const hidden of [true, false]) {
    await page.evaluate((now) => {
      Object.defineProperty(document, "hidden", { value: now, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  }
  await page.waitForFunction(() => /connection was cut/.test(document.querySelector(".live .state").textContent));
  await page.waitForFunction(() => document.querySelector(".live .state").textContent === "");
  assert.ok(asked.length >= 2 && asked[0] > 0 && asked[1] === asked[0], String(asked));
  await context.close();
});

test("nothing serious for axe-core", full, async () => {
  const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
  for (const colorScheme of ["light", "dark"]) {
    const { page, context } = await live_page({ colorScheme });
    const client = await context.newCDPSession(page);
    await client.send("Runtime.evaluate", { expression: axe });
    const { result } = await client.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
      expression: "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ' ' + v.nodes.map((n) => n.html).join(' ')))" });
    assert.deepEqual(result.value, [], colorScheme);
    await context.close();
  }
});

test("a stream goes on behind the event that it names, is no other site's, and there are only so many", full, async () => {
  const path = admin + "/console/live";
  assert.equal((await fetch(path, { headers: { "Sec-Fetch-Site": "cross-site" } })).status, 403);
  assert.equal((await fetch(path, { method: "POST" })).status, 405);
  const first = async (more) => {
    const stop = new AbortController();
    const answer = await fetch(path, { headers: more, signal: stop.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!/^id: \d+\ndata: .*\n\n/m.test(text)) text += (await reader.read()).value;
    stop.abort();
    const [, id, data] = text.match(/^id: (\d+)\ndata: (.*)\n\n/m);
    return [Number(id), JSON.parse(data)];
  };
  const [id, all] = await first({});
  assert.equal(all.at(-1).n, id);
  assert.equal(all.length, Math.min(id, 900));
  const [, news] = await first({ "Last-Event-ID": String(id) });
  assert.ok(news[0].n === id + 1 && news.length < all.length + 5);
  const stops = [];
  const statuses = [];
  for (let i = 0; i < 28; ++i) {
    const stop = new AbortController();
    stops.push(stop);
    statuses.push((await fetch(path, { signal: stop.signal })).status);
  }
  assert.deepEqual([...new Set(statuses)].sort(), [200, 503]);
  stops.forEach((stop) => stop.abort());
});

// Figures of docs/performance.md about the console, in headless Chromium: first paint, a long answer, a fleet of a thousand workers.
//
// usage: measure.mjs   BASE_URL of a server with tests/console/script.json, API_KEY as run.sh has them; run in run.sh's work folder
import { ask, base, open_browser, open_page } from "./browser.mjs";

const browser = await open_browser();
const median = (all) => all.sort((a, b) => a - b)[Math.floor(all.length / 2)];

const paints = [];
for (let i = 0; i < 9; ++i) {
  const { page, context } = await open_page(browser, base + "/console");
  await page.waitForTimeout(300);
  paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  await context.close();
}
console.log(`first contentful paint: median ${median(paints).toFixed(0)} ms, most ${Math.max(...paints).toFixed(0)} ms of 9`);

{
  const { page, context } = await open_page(browser, base + "/console");
  if (process.env.API_KEY) {
    await page.getByLabel("API key").fill(process.env.API_KEY);
    await page.keyboard.press("Enter");
  }
  await page.waitForSelector(".composer textarea");
  const client = await context.newCDPSession(page);
  await page.evaluate(() => {
    window.frames_seen = [];
    const note = (at) => { window.frames_seen.push(at); requestAnimationFrame(note); };
    requestAnimationFrame(note);
  });
  await ask(page, "long");
  await page.waitForFunction(() => document.querySelector(".answer .markdown")?.textContent.length > 100, null, { timeout: 60000 });
  const from = await page.evaluate(() => performance.now());
  await page.waitForSelector(".turn:last-child .answer .actions button", { timeout: 120000 });
  const { frames, seconds, foot } = await page.evaluate((begin) => ({ frames: window.frames_seen.filter((at) => at > begin).length, seconds: (performance.now() - begin) / 1000,
    foot: document.querySelector(".foot").textContent }), from);
  await client.send("HeapProfiler.collectGarbage");
  const { usedSize } = await client.send("Runtime.getHeapUsage");
  console.log(`a long answer (${foot}): ${(frames / seconds).toFixed(0)} frames/s over ${seconds.toFixed(1)} s; heap after ${(usedSize / 1e6).toFixed(1)} MB`);
  await context.close();
}

{
  const kUpdates = 20;
  const rows = (turn) => Array.from({ length: 1000 }, (_, i) => ({ name: `worker-${String(i).padStart(4, "0")}`, pool: "p" + (i % 4), address: `http://10.0.0.1:${i}`, state: "ready", reason: "",
    kind: "pelton", zone: "", region: "", version: "1", slots: 8, running: (i + turn) % 8, waiting: 0, kv_used: ((i + turn) % 100) / 100, requests: turn * i, failures: 0 }));
  const event = (n) => `id: ${n}\ndata: ${JSON.stringify({ n, samples: [{ n, at: Date.now() + n * 1000 }], tables: { workers: { all: n === 1, rows: rows(n) } } })}\n\n`;
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.route("**/console/config.json", (route) => route.fulfill({ json: { version: "x", pages: ["fleet"], chat_port: 0, chat_tls: false } }));
  let body = event(1);
  await page.route("**/console/fleet", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  await page.goto(base + "/console#fleet");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 200);
  await page.getByRole("button", { name: /Show all/ }).click();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1000);
  const client = await context.newCDPSession(page);
  await client.send("Performance.enable");
  const spent = async () => Object.fromEntries((await client.send("Performance.getMetrics")).metrics.map((one) => [one.name, one.value]));
  body = Array.from({ length: kUpdates }, (_, i) => event(i + 2)).join("");
  const before = await spent();
  await page.waitForFunction((text) => document.querySelector("tbody tr").cells[3].textContent === text, `${(kUpdates + 1) % 8} / 8`, { timeout: 60000 });
  await page.waitForTimeout(200);
  const after = await spent();
  const ms = (name) => ((after[name] - before[name]) * 1000) / kUpdates;
  console.log(`Fleet, 1 000 rows shown, every row changed: script ${ms("ScriptDuration").toFixed(1)} ms, style and layout ${(ms("RecalcStyleDuration") + ms("LayoutDuration")).toFixed(1)} ms an update`);
  await context.close();
}
await browser.close();

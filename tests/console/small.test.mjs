// Small things of the pages: what a model hides is shown, what is wrong is said and loses nothing, a cold gateway's models, a server's ledger.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { answered, ask, base, full, open_browser, open_page, streamed } from "./browser.mjs";

const admin = process.env.ADMIN_URL;
let browser;
before(async () => { browser = await open_browser(); });
after(async () => { await browser.close(); });

async function chat(options = {}) {
  const opened = await open_page(browser, base + "/console", options);
  await opened.page.fill("input[type=password]", process.env.API_KEY);
  await opened.page.keyboard.press("Enter");
  await opened.page.waitForSelector(".composer");
  return opened;
}
const answers = (page, body) => page.route("**/v1/chat/completions", (route) => route.fulfill({ contentType: "text/event-stream", body }));

test("characters that turn the text or that nobody sees are shown by number", full, async () => {
  const { page, context } = await chat();
  await answers(page, streamed([{ content: "a\u200bb\u2060c\ufeffd\u00ade\u{e0041}f\u200fg\u061ch\u202ei 👩\u200d🚀 ❤\ufe0f k\u{e0101}l\u034fm\u0085" }]));
  await ask(page, "hidden");
  await answered(page);
  assert.equal(await page.locator(".turn:last-child .markdown").textContent(), "a⟨U+200B⟩b⟨U+2060⟩c⟨U+FEFF⟩d⟨U+00AD⟩e⟨U+E0041⟩f⟨U+200F⟩g⟨U+061C⟩h⟨U+202E⟩i 👩\u200d🚀 ❤\ufe0f k⟨U+E0101⟩l⟨U+034F⟩m⟨U+0085⟩");
  await context.close();
});

test("tools that are no JSON leave the question in its field; a stream that is no JSON is said to be none", full, async () => {
  const { page, context } = await chat();
  await page.locator(".settings summary").click();
  await page.getByLabel("Tools (JSON array)").fill("[{");
  await ask(page, "With tools");
  assert.match(await page.locator(".fields .wrong").textContent(), /The tools are not a JSON array/);
  assert.equal(await page.locator(".turn").count(), 0);
  assert.equal(await page.locator(".composer textarea").inputValue(), "With tools");
  await page.getByLabel("Tools (JSON array)").fill("");
  await answers(page, "data: <html>\n\n");
  await page.locator(".composer textarea").press("Enter");
  await answered(page);
  assert.equal(await page.locator(".turn:last-child .state.wrong").textContent(), "What came is no answer: an event of the stream is not JSON.");
  await context.close();
});

test("on a phone the empty field's words are whole, and a table that goes on says so", full, async () => {
  const { page, context } = await chat({ viewport: { width: 390, height: 844 } });
  assert.equal(await page.locator(".composer textarea").getAttribute("placeholder"), "Ask something.");
  await answers(page, streamed([{ content: "| a | b |\n|---|---|\n| " + "long".repeat(30) + " | " + "x".repeat(90) + " |" }]));
  await ask(page, "table");
  await answered(page);
  const [wider, shadow] = await page.locator(".markdown .table").evaluate((one) => [one.scrollWidth > one.clientWidth, getComputedStyle(one).backgroundAttachment]);
  assert.deepEqual([wider, shadow], [true, "local, local, scroll, scroll"]);
  await context.close();
});

test("models of a gateway whose replicas are at zero, adapters, chains", full, async () => {
  const { page, context } = await chat();
  const asked = [];
  await page.route("**/v1/models", (route) => route.fulfill({ json: { data: [
    { id: "cold", root: "cold", parent: null, created: 0, max_model_len: 0, state: "cold" }, { id: "query", root: "/adapters/query", parent: "cold", created: 0, max_model_len: 0 },
    { id: "chain:revise", root: "chain:revise", parent: null, created: 0, max_model_len: 0 }] } }));
  await page.route("**/v1/model_cards/**", (route) => {
    asked.push(route.request().url().split("/").pop());
    return route.fulfill({ status: 503, json: { error: { code: "no_replica", message: "no replica" } } });
  });
  await page.evaluate(() => { location.hash = "#models"; });
  await page.getByText("Adapter query").waitFor();
  await page.locator(".cards .quiet").nth(1).waitFor();
  const text = await page.locator(".page").textContent();
  assert.ok(!/1970|0 tokens|revise/.test(text), text);
  assert.match(text, /Contextknown once a replica runs/);
  assert.match(text, /to look starts none/);
  assert.deepEqual(asked.sort(), ["cold", "query"]);
  await context.close();
});

test("a server's Health is its ledger", async () => {
  const { page, context, seen } = await open_page(browser, admin + "/console#server_health");
  await page.waitForSelector(".facts .fact");
  const ledger = await (await fetch(admin + "/debug/ledger")).json();
  const fact = async (name) => (await page.locator(".fact", { has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) }).locator("dd").textContent()).replace(/\u202f/g, "");
  assert.deepEqual([await fact("State"), await fact("Takes requests"), await fact("Threads")], [ledger.state, "yes", String(ledger.process.threads.count)]);
  assert.equal(await fact("Received"), String(ledger.server.requests.received));
  const rows = await page.locator("[aria-label='KV cache blocks'] tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent.replace(/\u202f/g, ""))));
  const blocks = Object.entries(ledger.engines).flatMap(([model, one]) => Object.entries(one.blocks).map(([group, of]) => [model, group, String(of.total)]));
  assert.deepEqual(rows.map((row) => row.slice(0, 3)), blocks);
  assert.deepEqual([seen.errors, seen.foreign], [[], []]);
  await context.close();
});

test("another page begins at its top", full, async () => {
  const { page, context } = await open_page(browser, admin + "/console#server_health", { viewport: { width: 1440, height: 300 } });
  await page.waitForSelector(".facts .fact");
  await page.locator("main").evaluate((main) => main.scrollTo(0, 400));
  await page.evaluate(() => { location.hash = "#live"; });
  await page.waitForFunction(() => document.body.dataset.page === "live" && document.querySelector(".charts") !== null);
  assert.equal(await page.locator("main").evaluate((main) => main.scrollTop), 0);
  await context.close();
});

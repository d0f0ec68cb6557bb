// A model's output as the attacker: nothing runs, nothing is fetched, the page stays usable.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { answered, ask, base, open_browser, open_page, picture, streamed } from "./browser.mjs";
import { hostile, large } from "./corpus.mjs";

let browser;
before(async () => { browser = await open_browser(); });
after(async () => { await browser.close(); });

async function open_chat() {
  const opened = await open_page(browser, base + "/console");
  await opened.page.fill("input[type=password]", process.env.API_KEY);
  await opened.page.keyboard.press("Enter");
  await opened.page.waitForSelector(".composer");
  opened.seen.errors = opened.seen.errors.filter((text) => !text.includes("401"));
  return opened;
}

// What stands in the talk beyond what Markdown makes, and links of other kinds.
function suspicious() {
  const log = document.querySelector(".log");
  const allowed = new Set("DIV ARTICLE SECTION DETAILS SUMMARY SPAN P H3 H4 H5 H6 UL OL LI BLOCKQUOTE PRE CODE STRONG EM DEL BR HR A TABLE THEAD TBODY TR TH TD BUTTON TEXTAREA".split(" "));
  const found = [];
  for (const element of log.querySelectorAll("*")) {
    if (!allowed.has(element.tagName)) found.push(element.tagName);
    if (element.tagName === "A" && !["http:", "https:", "mailto:"].includes(element.protocol)) found.push(element.href);
    for (const { name } of element.attributes) if (name.startsWith("on") || ["style", "src", "srcdoc", "srcset"].includes(name)) found.push(name);
  }
  return found;
}

test("500 hostile outputs, in the answer, the reasoning and a tool call", async () => {
  assert.ok(hostile.length >= 500);
  const { page, seen, context } = await open_chat();
  let current = "";
  await page.route("**/v1/chat/completions", (route) => route.fulfill({ contentType: "text/event-stream", body: streamed([
    { reasoning_content: current }, { content: current.slice(0, 7) }, { content: current.slice(7) },
    { tool_calls: [{ index: 0, id: "call", function: { name: current, arguments: JSON.stringify({ x: current }) } }] }], "tool_calls") }));
  for (const [i, text] of hostile.entries()) {
    current = text;
    await ask(page, `case ${i}`);
    await page.waitForSelector(".turn:last-child .actions button >> nth=1");
    if (i % 20 === 19) {
      await page.waitForTimeout(100);
      assert.deepEqual(await page.evaluate(suspicious), [], `cases up to ${i}`);
      for (const fold of await page.locator(".reasoning summary").all()) await fold.evaluate((summary) => summary.click());
      await page.locator(".markdown a").first().hover({ timeout: 1000, force: true }).catch(() => {});
      if (i === 19) await picture(page, "hostile-1440-light");
      await page.getByRole("button", { name: "New chat" }).click();
    }
  }
  await page.waitForTimeout(300);
  assert.deepEqual(seen, { errors: [], foreign: [], hits: 0, dialogs: 0 });
  await page.unroute("**/v1/chat/completions");
  await ask(page, "hostile"); // and once by the server itself
  await answered(page);
  assert.match(await page.locator(".turn:last-child .markdown").textContent(), /<script>hit\(1\)<\/script>/);
  assert.deepEqual(await page.evaluate(suspicious), []);
  assert.deepEqual(seen, { errors: [], foreign: [], hits: 0, dialogs: 0 });
  await context.close();
});

test("names of models as HTML", async () => {
  const { page, seen, context } = await open_chat();
  const name = "<img src=x onerror=hit()>\u202egpj";
  await page.route("**/v1/models", (route) => route.fulfill({ json: { data: [{ id: name, root: name, created: 1, max_model_len: 1 }] } }));
  await page.route("**/v1/model_cards/**", (route) => route.fulfill({ json: { license: { name, link: "javascript:hit()", text: name }, card: hostile.join("\n\n") } }));
  await page.evaluate(() => { location.hash = "#models"; });
  await page.getByText("Model card", { exact: true }).click();
  await page.waitForTimeout(500);
  assert.equal(await page.locator("main img, main script, main svg, main a[href^=javascript]").count(), 0);
  await page.evaluate(() => { location.hash = "#chat"; });
  await page.waitForSelector(".composer");
  assert.deepEqual(seen, { errors: [], foreign: [], hits: 0, dialogs: 0 });
  await context.close();
});

test("what is large leaves the page usable", async () => {
  const { page, seen, context } = await open_chat();
  for (const [name, text] of Object.entries(large)) {
    await page.route("**/v1/chat/completions", (route) => route.fulfill({ contentType: "text/event-stream",
      body: streamed(text.match(/[^]{1,65536}/g).map((content) => ({ content }))) }));
    const begun = Date.now();
    await ask(page, "show " + name.slice(0, 4));
    await answered(page);
    // All of it has come into the page, and the page answers a key.
    const least = name.includes("table") || name.includes("nested") ? 0 : text.replace(/[\s`*_\[\]()-]/g, "").length * 0.9;
    await page.waitForFunction((least) => document.querySelector(".turn:last-child .markdown").textContent.replace(/[\s`*_\[\]()-]/g, "").length >= least, least, { timeout: 60000 });
    await page.fill(".composer textarea", "still here");
    const took = Date.now() - begun;
    console.log(`${name}: ${took} ms`);
    assert.ok(took < 60000, name);
    await page.unroute("**/v1/chat/completions");
    await page.fill(".composer textarea", "");
    await page.getByRole("button", { name: "New chat" }).click();
  }
  assert.deepEqual(seen, { errors: [], foreign: [], hits: 0, dialogs: 0 });
  await context.close();
});

// The chat and the models' page, by keyboard and by eye, against a server of scripted answers that asks for a key.
import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, test } from "node:test";
import { answered, ask, base, full, looks, open_browser, open_page, picture, sizes } from "./browser.mjs";

let browser;
before(async () => { browser = await open_browser(); });
after(async () => { await browser.close(); });

async function signed_in(options = {}, path = "/console") {
  const opened = await open_page(browser, base + path, options);
  await opened.page.fill("input[type=password]", process.env.API_KEY);
  await opened.page.keyboard.press("Enter");
  await opened.page.waitForSelector(path.includes("models") ? ".facts" : ".composer");
  // The first question for the models was refused: that is the only error there may be.
  opened.seen.errors = opened.seen.errors.filter((text) => !text.includes("401"));
  return opened;
}

function clean(seen) {
  assert.deepEqual({ ...seen }, { errors: [], foreign: [], hits: 0, dialogs: 0 });
}

async function no_overflow(page) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "wider than the screen");
}

test("a wrong key is refused, a right one kept in the tab only", full, async () => {
  const { page, context } = await open_page(browser, base + "/console");
  await page.fill("input[type=password]", "wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("[role=alert]");
  await page.fill("input[type=password]", process.env.API_KEY);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".composer");
  const kept = await page.evaluate(() => [JSON.stringify({ ...localStorage }), document.cookie, JSON.stringify({ ...sessionStorage })]);
  assert.equal(kept[0].includes(process.env.API_KEY) || kept[1] !== "", false);
  assert.equal(kept[2].includes(process.env.API_KEY), true);
  await context.close();
});

test("streams, folds reasoning, shows times and counts", async () => {
  for (const [width, viewport, colorScheme] of looks) {
    const { page, seen, context } = await signed_in({ viewport, colorScheme });
    await picture(page, `chat-empty-${width}-${colorScheme}`);
    await ask(page, "Show markdown, please");
    await answered(page);
    assert.equal(await page.locator(".reasoning").evaluate((fold) => fold.open), false);
    assert.match(await page.locator(".reasoning .plain").textContent(), /what there is/);
    for (const tag of ["h3", "strong", "em", "del", "ol li", "ul li", "blockquote", "table td.right", "pre code", "a"]) {
      assert.ok(await page.locator(`.markdown ${tag}`).count(), tag);
    }
    assert.match(await page.locator(".foot").textContent(), /prompt tokens .* first token .* tokens\/s/);
    await no_overflow(page);
    await picture(page, `chat-${width}-${colorScheme}`);
    clean(seen);
    await context.close();
  }
});

test("stops, edits and asks again", full, async () => {
  const { page, seen, context } = await signed_in();
  await ask(page, "a long one");
  await page.waitForSelector(".markdown p");
  await page.keyboard.press("Escape");
  await answered(page);
  assert.match(await page.locator(".answer .state").textContent(), /Stopped/);
  const length = (await page.locator(".markdown").textContent()).length;
  assert.ok(length < 20000, "it went on");
  await page.keyboard.press("ArrowUp"); // edits the last question
  await page.fill(".question textarea", "a short one");
  await page.keyboard.press("Enter");
  await answered(page);
  assert.equal(await page.locator(".turn").count(), 1);
  assert.equal((await page.locator(".markdown").textContent()).trim(), "Short.");
  await page.getByRole("button", { name: "Again" }).click();
  await answered(page);
  assert.equal(await page.locator(".answer").count(), 1);
  clean(seen);
  await context.close();
});

test("a tool call is shown, and its result answered", full, async () => {
  const { page, seen, context } = await signed_in({ viewport: sizes[390] });
  await page.getByText("Settings").click();
  await page.getByLabel("Tools (JSON array)").fill("{");
  await ask(page, "tool");
  assert.match(await page.locator(".settings .wrong").textContent(), /not a JSON array/);
  await page.getByRole("button", { name: "New chat" }).click();
  await page.getByLabel("Tools (JSON array)").fill(JSON.stringify([{ type: "function", function: { name: "weather" } }]));
  await page.locator("summary", { hasText: "Settings" }).click();
  await ask(page, "use the tool");
  await answered(page);
  assert.match(await page.locator(".call").textContent(), /weather[^]*"city": "Chamonix"/);
  await picture(page, "chat-tools-390-light");
  await page.locator(".results textarea").fill("sunny");
  await page.getByRole("button", { name: "Send results" }).click();
  await answered(page);
  assert.match(await page.locator(".turn:last-child .markdown").textContent(), /It will be sunny/);
  clean(seen);
  await context.close();
});

test("two models side by side, and the talk as a file", full, async () => {
  for (const [width, viewport] of Object.entries(sizes)) {
    const { page, seen, context } = await signed_in({ viewport, acceptDownloads: true });
    await page.getByRole("button", { name: "Side by side" }).click();
    assert.deepEqual(await page.locator(".tools select").evaluateAll((all) => all.map((one) => one.value)), ["one", "two"]);
    await ask(page, "Show markdown");
    await answered(page);
    assert.equal(await page.locator(".answer").count(), 2);
    await no_overflow(page);
    await picture(page, `beside-${width}-light`);
    const downloading = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save as JSON" }).click();
    const saved = JSON.parse(fs.readFileSync(await (await downloading).path(), "utf8"));
    assert.deepEqual(saved.turns[0].answers.map((answer) => answer.model), ["one", "two"]);
    assert.match(saved.turns[0].answers[1].content, /Pelton wheel/);
    clean(seen);
    await context.close();
  }
});

test("the models' page says what the API says", async () => {
  const headers = { Authorization: "Bearer " + process.env.API_KEY };
  const models = (await (await fetch(base + "/v1/models", { headers })).json()).data;
  for (const [width, viewport, colorScheme] of looks) {
    const { page, seen, context } = await signed_in({ viewport, colorScheme }, "/console#models");
    const text = (await page.locator(".page").textContent()).replace(/\u202f/g, "");
    for (const model of models) assert.ok(text.includes(model.id) && text.includes(String(model.max_model_len)), model.id);
    await page.getByText("Model card", { exact: true }).first().click();
    await page.waitForSelector(".markdown h3");
    await no_overflow(page);
    await picture(page, `models-${width}-${colorScheme}`);
    clean(seen);
    await context.close();
  }
});

test("nothing serious for axe-core", full, async () => {
  const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
  for (const colorScheme of ["light", "dark"]) {
    const { page, context } = await signed_in({ colorScheme });
    await ask(page, "Show markdown");
    await answered(page);
    for (const hash of ["#chat", "#models"]) {
      await page.evaluate((to) => { location.hash = to; }, hash);
      await page.waitForSelector(hash === "#chat" ? ".composer" : ".facts");
      const client = await context.newCDPSession(page);
      // As the debugger does it: past the page's own policy.
      await client.send("Runtime.evaluate", { expression: axe });
      const { result } = await client.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
        expression: "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ' ' + v.nodes.map((n) => n.html).join(' ')))" });
      assert.deepEqual(result.value, [], hash + " " + colorScheme);
    }
    await context.close();
  }
});

test("a server that goes away is said", full, async () => {
  const { page, context } = await signed_in();
  await page.route("**/v1/chat/completions", (route) => route.abort());
  await ask(page, "anybody?");
  await answered(page);
  assert.match(await page.locator(".answer .state.wrong").textContent(), /does not answer/);
  await context.close();
});

// The pictures of the documentation: a fleet of `pelton quickstart fleet` that scales under its load, a chat with it, and one server at work. Made anew
// with DOCS_PICTURES=FOLDER only (docs/pictures has them); what they are to show is waited for.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { answered, ask, open_browser, open_page } from "./browser.mjs";

const folder = process.env.DOCS_PICTURES;
const kBytesMax = 80_000;
const wide = { width: 1440, height: 800 };
const phone = { width: 390, height: 800 };
const kModel = path.join(fs.realpathSync("console"), "..", "models", "pelton-box");
const children = [];
let browser;

// A program of ours, when it has said each of these.
async function start(words, ...said) {
  const child = spawn(process.env.PELTON, words, { stdio: ["ignore", "pipe", "ignore"] });
  children.push(child);
  let out = "";
  child.stdout.on("data", (data) => { out += data; });
  for (let i = 0; i < 1200 && !said.every((one) => one.test(out)); ++i) await new Promise((resolve) => setTimeout(resolve, 50));
  return { of: said.map((one) => out.match(one)?.[1]), out: () => out };
}
before(async () => {
  browser = await open_browser();
});
after(async () => {
  await browser.close();
  for (const child of children) {
    const over = new Promise((resolve) => child.on("exit", resolve));
    if (child.exitCode === null && child.kill("SIGTERM")) await over;
  }
});

async function keep(page, name) {
  const file = `${folder}/${name}.png`;
  fs.mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: file });
  assert.ok(fs.statSync(file).size <= kBytesMax, `${file} is too large`);
}

test("a fleet that scales, and a chat with it", { skip: !folder }, async () => {
  const { of: [chat, admin], out } = await start(["quickstart", "fleet", kModel, "--stay", "--seconds", "25", "--port", "0", "--admin-port", "0"],
    /^chat +(\S+)$/m, /^console +(\S+) /m);
  assert.ok(admin, out());
  const fleet = (await open_page(browser, admin + "#fleet", { viewport: wide })).page;
  await fleet.waitForFunction(() => document.querySelectorAll("td[data-mark=ready]").length >= 3, null, { timeout: 60000 });
  await fleet.waitForTimeout(5000);
  await keep(fleet, "console-fleet");
  const { page, context } = await open_page(browser, chat, { viewport: wide });
  for (const question of ["What is a Pelton wheel?", "What is 17 plus 25?"]) {
    await ask(page, question);
    await answered(page);
  }
  await page.locator(".reasoning summary").last().click();
  await keep(page, "console-chat");
  await context.close();
  const small = (await open_page(browser, chat, { viewport: phone, hasTouch: true, isMobile: true })).page;
  await ask(small, "What is a Pelton wheel?");
  await answered(small);
  await keep(small, "console-chat-phone");
  const scaling = (await open_page(browser, admin + "#scaling", { viewport: wide })).page;
  await scaling.waitForFunction(() => document.querySelectorAll("tbody tr").length >= 5, null, { timeout: 60000 });
  await keep(scaling, "console-scaling");
});

test("a server at work", { skip: !folder }, async () => {
  const { of: [api, admin] } = await start(["serve", kModel, "--port", "0", "--admin-port", "0"], /^listening on (\S+)$/m, /^admin on (\S+)$/m);
  const { page } = await open_page(browser, admin + "/console", { viewport: { ...wide, height: 465 } });
  const questions = ["What is a Pelton wheel?", "What is 17 plus 25?", "Who invented it?"];
  const end = Date.now() + 50000;
  const lane = async (n) => {
    while (Date.now() < end) {
      await (await fetch(api + "/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ model: "pelton-box", messages: [{ role: "user", content: questions[n % 3] }] }) })).text();
      await new Promise((resolve) => setTimeout(resolve, 40 * (++n % 7)));
    }
  };
  const lanes = [0, 1, 2].map(lane);
  await page.waitForTimeout(48000);
  await keep(page, "console-live");
  await Promise.all(lanes);
});

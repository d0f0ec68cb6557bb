// A browser that says what a page has done: console errors, requests to other hosts, calls of hit().
import { chromium } from "playwright-core";
import fs from "node:fs";

export const base = process.env.BASE_URL;

// ./test opens each page once, sees data of the API on it and goes through two flows; the rest is --full's.
export const every = process.env.PELTON_FULL === "1" || Boolean(process.env.PICTURES);
export const full = { skip: !every && "PELTON_FULL=1 opens this" };
export const sizes = { 1440: { width: 1440, height: 900 }, 390: { width: 390, height: 844 } };
const all_looks = Object.entries(sizes).flatMap(([width, viewport]) => ["light", "dark"].map((colorScheme) => [width, viewport, colorScheme]));
// Widths, windows and colours in which pages are looked at: all, or of ./test a wide one.
export const looks = every ? all_looks : all_looks.slice(-2, -1);

export async function open_browser() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
}

export async function open_page(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  const seen = { errors: [], foreign: [], hits: 0, dialogs: 0 };
  await page.exposeFunction("hit", () => { ++seen.hits; });
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) seen.errors.push(message.text()); });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("dialog", (dialog) => { ++seen.dialogs; void dialog.dismiss(); });
  const origin = new URL(url).origin;
  page.on("request", (request) => {
    const at = new URL(request.url());
    if (at.origin !== origin && at.protocol !== "blob:") seen.foreign.push(request.url());
  });
  await page.goto(url);
  return { page, seen, context };
}

// A model's answer, as the server would stream it.
export function streamed(deltas, finish = "stop") {
  const chunk = (delta, finish_reason = null) =>
    `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }], usage: { prompt_tokens: 1, completion_tokens: 2 } })}\n\n`;
  return deltas.map((delta) => chunk(delta)).join("") + chunk({}, finish) + "data: [DONE]\n\n";
}

export async function ask(page, text) {
  await page.fill(".composer textarea", text);
  await page.keyboard.press("Enter");
}
export async function answered(page) {
  await page.waitForFunction(() => {
    const answers = [...document.querySelectorAll(".turn:last-child .answer")];
    return answers.length > 0 && answers.every((answer) => answer.querySelector(".actions button"));
  }, null, { timeout: 60000 });
  await page.waitForTimeout(60); // a frame or two, for the last words
}

// `whole`: all that the page scrolls to.
export async function picture(page, name, whole = false) {
  if (!process.env.PICTURES) return;
  fs.mkdirSync(process.env.PICTURES, { recursive: true });
  const before = page.viewportSize();
  if (whole) {
    const height = await page.evaluate(() => document.querySelector("header").offsetHeight + document.querySelector("main").scrollHeight);
    await page.setViewportSize({ width: before.width, height: Math.min(Math.max(height, before.height), 6000) });
    await page.waitForTimeout(200);
  }
  await page.screenshot({ path: `${process.env.PICTURES}/${name}.png` });
  if (whole) await page.setViewportSize(before);
}

// The page Chains: the graph that the API says, a run that is drawn as it goes, one that fails, one that is stopped, hostile words.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { full, open_browser, open_page, picture } from "./browser.mjs";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pelton-chains-"));
const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const kHostile = "<img src=x onerror=hit(1)>";
let browser;
let server;
let said = "";

before(async () => {
  browser = await open_browser();
  fs.writeFileSync(path.join(folder, "pieces.toml"), `name = "pieces"
about = "${kHostile}"
input = {documents = "[string]", task = "string", words = "integer?"}
output = {text = "\${joined.text}", more = "\${more.text}", perhaps = "\${perhaps.text}", stream_from = "more"}
[[step]]
name = "answers"
use = "model:*"
for_each = "\${input.documents}"
with = {prompt = "\${input.task} \${item}"}
[[step]]
name = "joined"
use = "builtin:join"
with = {parts = "\${answers[*].text}", separator = "; "}
[[step]]
name = "perhaps"
use = "model:*"
when = "\${length(input.documents) > 99}"
with = {prompt = "\${joined.text}"}
[[step]]
name = "more"
use = "model:*"
with = {prompt = "\${input.task} \${joined.text}", max_tokens = 400}
`);
  fs.writeFileSync(path.join(folder, "wrong.toml"), `name = "wrong"
input = {text = "string"}
output = {value = "\${read.value}"}
[[step]]
name = "read"
use = "builtin:json"
with = {text = "\${input.text}"}
`);
  const child = spawn(process.env.PELTON, ["serve", path.resolve("one"), "--port", "0", "--chains", folder, "--executor", `modelled:${path.resolve("script.json")}`],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, PELTON_API_KEY: "sesame" } });
  server = { child, over: new Promise((resolve) => child.on("exit", resolve)) };
  child.stderr.on("data", (data) => { said += data; });
  let out = "";
  for await (const data of child.stdout) {
    out += data;
    if (/^listening on .*\n/m.test(out)) break;
  }
  server.url = out.match(/^listening on (.*)$/m)?.[1];
  assert.ok(server.url, said);
});
after(async () => {
  await browser.close();
  server.child.kill("SIGTERM");
  await server.over;
  fs.rmSync(folder, { recursive: true });
});

async function open_chains(options = {}) {
  const opened = await open_page(browser, server.url + "/console#chains", options);
  await opened.page.getByLabel("API key").fill("sesame");
  await opened.page.keyboard.press("Enter");
  await opened.page.waitForSelector(".graph svg");
  opened.seen.errors = opened.seen.errors.filter((text) => !/401/.test(text));
  return opened;
}
async function clean({ page, seen, context }) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing is wider than the page");
  assert.deepEqual([seen.errors, seen.foreign, seen.hits], [[], [], 0]);
  await context.close();
}
const state = (page) => page.locator(".fact dt", { hasText: /^State$/ }).locator("xpath=../dd").textContent();
async function run(page, documents, task) {
  await page.getByLabel("documents ([string])").fill(documents);
  await page.getByLabel("task (string)").fill(task);
  await page.getByRole("button", { name: "Run" }).click();
}
const over = (page) => page.getByRole("button", { name: "Run" }).waitFor({ timeout: 60000 });

test("the graph is the API's, and a run's steps and output are what the run says", async () => {
  const opened = await open_chains();
  const { page } = opened;
  const { data } = await (await fetch(server.url + "/v1/chains", { headers: { Authorization: "Bearer sesame" } })).json();
  assert.deepEqual(data.map((one) => one.id), ["pieces", "wrong"]);
  const drawn = await page.locator(".graph .step").allTextContents();
  assert.deepEqual(drawn, ["input", ...data[0].steps.map((one) => one.name)]);
  assert.equal(await page.locator(".graph .edge").count(), data[0].steps.reduce((sum, one) => sum + one.needs.length, 0));
  assert.equal(await page.locator(".graph .perhaps").count(), 1);
  await page.waitForFunction((text) => document.querySelector("main").innerText.includes(text), kHostile);
  await run(page, '["a", "b", "c"]', "short");
  await over(page);
  assert.equal(await state(page), "done");
  const rows = await page.locator(".runs li").evaluateAll((all) => all.map((one) => [one.querySelector(".run-name").textContent, one.querySelector(".run-text").textContent]));
  assert.deepEqual(rows.map(([name]) => name).sort(), data[0].steps.map((one) => one.name).sort());
  assert.match(new Map(rows).get("perhaps"), /skipped/);
  assert.match(new Map(rows).get("answers"), /after .*: .*tokens/);
  // The bars lie as the steps need each other: none begins before what it waits for has ended.
  const bars = new Map(await page.locator(".runs li").evaluateAll((all) => all.map((one) => {
    const { left, right } = one.querySelector(".run-bar").getBoundingClientRect();
    return [one.querySelector(".run-name").textContent, { left, right }];
  })));
  assert.ok(bars.get("more").left >= bars.get("answers").right - 8, JSON.stringify([...bars]));
  const output = JSON.parse(await page.locator(".code code").textContent());
  assert.equal(output.text, "Short.; Short.; Short.");
  await clean(opened);
});

test("a run that fails says which step; input that is no JSON is not sent", full, async () => {
  const opened = await open_chains();
  const { page, seen } = opened;
  await page.getByLabel("documents ([string])").fill("[1");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("documents is not JSON").waitFor();
  await page.getByLabel("Chain").selectOption("wrong");
  await page.getByLabel("text (string)").fill(kHostile);
  await page.getByRole("button", { name: "Run" }).click();
  await over(page);
  assert.match(await state(page), /^ended: step 'read'/);
  assert.equal(await page.locator("img").count(), 0);
  seen.errors = seen.errors.filter((text) => !/422/.test(text));
  await clean(opened);
});

test("a run that is stopped ends at the server, too", full, async () => {
  const opened = await open_chains();
  const { page } = opened;
  await run(page, '["a"]', "long");
  await page.waitForSelector(".run-bar.at-work");
  await page.getByRole("button", { name: "Stop" }).click();
  await over(page);
  assert.equal(await state(page), "ended: stopped");
  const running = async () => Number((await (await fetch(server.url + "/metrics", { headers: { Authorization: "Bearer sesame" } })).text()).match(/^vllm:num_requests_running\S* (\S+)$/m)[1]);
  for (let i = 0; i < 100 && (await running()) > 0; ++i) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(await running(), 0);
  await clean(opened);
});

test("looked at", full, async () => {
  for (const [width, viewport] of Object.entries({ 1440: { width: 1440, height: 900 }, 390: { width: 390, height: 844 } })) {
    for (const colorScheme of ["light", "dark"]) {
      const opened = await open_chains({ viewport, colorScheme });
      const { page, context } = opened;
      await run(page, '["a", "b", "c"]', "short");
      await over(page);
      await page.locator(".runs").scrollIntoViewIfNeeded();
      await picture(page, `chains-${width}-${colorScheme}`);
      const client = await context.newCDPSession(page);
      await client.send("Runtime.evaluate", { expression: axe });
      const { result } = await client.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
        expression: "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ' ' + v.nodes.map((n) => n.html).join(' ')))" });
      assert.deepEqual(result.value, [], `${width} ${colorScheme}`);
      await clean(opened);
    }
  }
});

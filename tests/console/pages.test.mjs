// The pages Routing, Splits, Health and Configuration of a gateway that splits requests between a pool at work and one whose worker is not there.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { open_browser, open_page, picture } from "./browser.mjs";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pelton-pages-"));
const file = path.join(folder, "gateway.toml");
const model = path.resolve("one");
const script = path.resolve("script.json");
const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const kHostile = "<img src=x onerror=hit(1)>";
let browser;
let gateway;
let said = "";

const config = (threads, arms = "weight = 3") => `[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
threads = ${threads}
resume_budget = 0.2

[[pool]]
name = "near"
model = "one"
tokenizer = "${model}"

[pool.scale]
min = 1
max = 1

[pool.launch]
serve = ["${model}", "--executor", "modelled:${script}"]
start_seconds = 1

[[pool]]
name = "gone"
model = ["one", "${kHostile}"]

[[worker]]
pool = "gone"
url = "http://127.0.0.1:3"

[[route]]
model = "one"
sticky = "none"

[[route.to]]
pool = "near"
${arms}

[[route.to]]
pool = "gone"
arm = "${kHostile}"
weight = 1
`;
const write = (text) => {
  fs.writeFileSync(file + ".tmp", text);
  fs.renameSync(file + ".tmp", file);
};

before(async () => {
  browser = await open_browser();
  write(config(1));
  const child = spawn(process.env.PELTON, ["gateway", "--config", file, "--with-autoscaler"], { stdio: ["ignore", "pipe", "pipe"] });
  gateway = { child, over: new Promise((resolve) => child.on("exit", resolve)) };
  child.stderr.on("data", (data) => { said += data; });
  let out = "";
  for await (const data of child.stdout) {
    out += data;
    if (/^admin on .*\n/m.test(out)) break;
  }
  gateway.url = out.match(/^listening on (.*)$/m)?.[1];
  gateway.admin = out.match(/^admin on (.*)$/m)?.[1];
  assert.ok(gateway.admin, said);
  for (let i = 0; i < 300 && !(await json("/v1/workers")).workers.some((one) => one.state === "ready"); ++i) {
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const asked = [];
  for (let i = 0; i < 40; ++i) {
    const answer = await fetch(gateway.url + "/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model: "one", messages: [{ role: "user", content: "Hello " + i }], max_tokens: 8 }) });
    await answer.text();
    asked.push(answer.status);
  }
  assert.ok(asked.includes(200) && asked.includes(503), String(asked));
});
after(async () => {
  await browser.close();
  gateway.child.kill("SIGTERM");
  await gateway.over;
  fs.rmSync(folder, { recursive: true });
});

const json = async (target, options) => (await fetch(gateway.admin + target, options)).json();
const metrics = async () => (await fetch(gateway.admin + "/metrics")).text();
// The value of the one sample whose line begins so.
const counted = (text, begin) => {
  const line = text.split("\n").find((one) => one.startsWith(begin + " "));
  assert.ok(line, begin);
  return Number(line.slice(begin.length));
};
const plain = (text) => text.replace(/\u202f/g, "");
const cells = (page) => page.locator("tbody tr").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent.replace(/\u202f/g, ""))));
const shows = (page, text) => page.waitForFunction((wanted) => document.querySelector("main").innerText.includes(wanted), text, { timeout: 15000 });
const settled = { routing: "Message", splits: kHostile, health: "Connection refused", configuration: "[gateway]" };

async function page_of(name, options = {}) {
  const opened = await open_page(browser, `${gateway.admin}/console#${name}`, options);
  await shows(opened.page, settled[name]);
  return opened;
}
const pool_of = (page) => page.locator(".fact dt", { hasText: /^Pool$/ }).locator("xpath=../dd").textContent();
// Until that arm is drawn.
async function explain(page, pool) {
  await page.getByLabel("Model").fill("one");
  await page.getByLabel("Message").fill("Why there?");
  for (let i = 0; i < 100; ++i) {
    const answer = page.waitForResponse(/v1\/explain/);
    await page.getByRole("button", { name: "Explain" }).click();
    await (await answer).finished();
    await page.locator(".fact").first().waitFor();
    await page.waitForTimeout(50);
    if ((await pool_of(page)) === pool) return;
  }
  assert.fail(`never ${pool}`);
}
async function clean({ page, seen, context }) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing is wider than the page");
  assert.equal(await page.locator("main img").count(), 0);
  assert.deepEqual([seen.errors, seen.foreign, seen.hits], [[], [], 0]);
  await context.close();
}

test("each page, at each size and in each colour", async () => {
  for (const [width, viewport] of Object.entries({ 1440: { width: 1440, height: 900 }, 390: { width: 390, height: 844 } })) {
    for (const colorScheme of ["light", "dark"]) {
      for (const name of Object.keys(settled)) {
        const opened = await page_of(name, { viewport, colorScheme });
        const { page, context } = opened;
        if (name === "routing") await explain(page, "near");
        await picture(page, `${name}-${width}-${colorScheme}`);
        const client = await context.newCDPSession(page);
        await client.send("Runtime.evaluate", { expression: axe });
        const { result } = await client.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true,
          expression: "axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ' ' + v.nodes.map((n) => n.html).join(' ')))" });
        assert.deepEqual(result.value, [], `${name} ${width} ${colorScheme}`);
        await clean(opened);
      }
    }
  }
});

test("Routing says what the API says, and why there is no answer", async () => {
  const opened = await page_of("routing");
  const { page } = opened;
  assert.ok((await page.locator("datalist option").evaluateAll((all) => all.map((one) => one.value))).includes("one"));
  assert.equal(await page.getByLabel("Model").inputValue(), "one", "the shortest name");
  await explain(page, "gone");
  const goes_to = () => page.locator(".fact", { hasText: "Goes to" }).locator("dd").textContent();
  assert.equal(await goes_to(), "nobody: it waits, or is refused");
  assert.equal(await page.locator("td[data-mark=ready]").count(), 0);
  await explain(page, "near");
  const body = JSON.stringify({ model: "one", messages: [{ role: "user", content: "Why there?" }] });
  let api;
  do {
    api = await json("/v1/explain?path=/v1/chat/completions", { method: "POST", body });
  } while (api.pool !== "near");
  const fact = async (name) => plain(await page.locator(".fact", { hasText: name }).locator("dd").textContent());
  assert.deepEqual((await cells(page)).map((row) => [row[0], row[1], row[10]]), api.candidates.map((one) => [one.name, "chosen", String(one.hit_tokens)]));
  assert.deepEqual([await fact("Goes to"), await fact("Prompt tokens"), await fact("Output tokens expected")], [api.chosen, String(api.prompt_tokens), String(api.output_tokens)]);
  await page.getByLabel("Model").fill(kHostile + " none");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.locator(".ask .wrong:not(:empty)").waitFor();
  assert.match(await page.locator(".ask .wrong").textContent(), /does not exist|not found|onerror/);
  opened.seen.errors = opened.seen.errors.filter((text) => !/404/.test(text));
  await clean(opened);
});

test("Splits has the arms' shares and figures", async () => {
  const opened = await page_of("splits");
  const text = await metrics();
  const rows = await cells(opened.page);
  assert.deepEqual(rows.map((row) => row.slice(0, 3)), [["near", "near", "75.0 %"], [kHostile, "gone", "25.0 %"]]);
  const labels = (arm) => `{model="one",arm="${arm}",traffic="clients"`;
  const requests = ["near", kHostile].map((arm) => counted(text, `pelton_gateway_arm_requests_total${labels(arm)}}`));
  assert.equal(requests[0] + requests[1], 40);
  for (const [i, arm] of ["near", kHostile].entries()) {
    assert.equal(rows[i][3], ((requests[i] / 40) * 100).toFixed(1) + " %");
    const outcomes = ["ok", "client_error", "error", "left"].map((one) => String(counted(text, `pelton_gateway_arm_answers_total${labels(arm)},outcome="${one}"}`)));
    assert.deepEqual(rows[i].slice(4, 9), [String(requests[i]), ...outcomes]);
  }
  assert.match(rows[0][9], /^[\d.]+ m?s, [\d.]+ m?s$/);
  assert.equal(rows[0][11], "8");
  assert.equal(rows[1][9], "nothing yet, nothing yet");
  await clean(opened);
});

test("Health names the worker that is not there, and counts what was done", async () => {
  const opened = await page_of("health");
  const { page } = opened;
  const api = (await json("/v1/workers")).workers.find((one) => one.pool === "gone");
  const row = (await cells(page)).find((one) => one[1] === "gone");
  assert.deepEqual([row[0], row[2], row[3]], [api.name, api.state, api.reason]);
  const text = await metrics();
  const fact = async (name) => plain(await page.locator(".fact", { hasText: name }).locator("dd").textContent());
  assert.equal(await fact("Workers that take requests"), "1 of 2");
  assert.equal(await fact("Refused by the gateway"), String(counted(text, "pelton_gateway_unserved_total")));
  const rows = (await cells(page)).filter((one) => one[1] === "Tried again at another worker");
  const reasons = ["unreached", "lost", "down", "busy", "restarted", "refused", "failed"].map((why) => [why, counted(text, `pelton_gateway_retries_total{reason="${why}"}`)]);
  assert.deepEqual(rows.map(([count, , why]) => [why, Number(count)]), reasons.filter(([, count]) => count > 0), "what has not happened is no row");
  // Forty requests, of which a quarter was refused: the budget burns, and the page says what /v1/conditions does.
  const { conditions, budget } = await json("/v1/conditions");
  assert.ok(budget.bad_share > 0.1 && budget.requests === 40, JSON.stringify(budget));
  assert.equal(await fact("Not served, or interrupted"), String(budget.bad));
  assert.equal(await fact("Share of these"), (budget.bad_share * 100).toFixed(2) + " %");
  const loud = conditions.filter((one) => one.state !== "quiet").map((one) => one.name);
  assert.ok(loud.includes("PeltonErrorBudgetFast"), String(loud));
  const shown = await page.locator("[aria-label=Alerts] tbody tr").evaluateAll((all) => all.map((row) => row.cells[1].textContent));
  assert.deepEqual(shown.sort(), loud.sort());
  // Every rule has a line, and the budget one for each window that is kept.
  const { elsewhere, budgets } = await json("/v1/conditions");
  const listed = await page.locator("[aria-label='All rules, and which of them the gateway cannot judge'] tbody tr").evaluateAll((all) => all.map((row) => row.cells[1].textContent));
  const rules = [...fs.readFileSync(path.join(fs.realpathSync("console"), "../deploy/metrics.toml"), "utf8").matchAll(/^\[\[alert\]\]\nname = "(\w+)"/gm)].map((one) => one[1]);
  assert.deepEqual(new Set(listed), new Set([...conditions, ...elsewhere].map((one) => one.name)));
  // Those of pools stand there once there is one that is scaled.
  assert.deepEqual(rules.filter((one) => !listed.includes(one) && !/^Pelton(HeldLong|StartsFail|ReplicasMissing|ReplicasLost|AutoscalerBlind)$/.test(one)), []);
  assert.equal(await page.locator("[aria-label='Error budget'] tbody tr").count(), budgets.length);
  const ledger = await json("/debug/ledger");
  assert.equal(await fact("Requests open"), String(ledger.requests.open));
  assert.equal(await fact("Threads"), String(ledger.process.threads.count));
  const held = await page.locator("[aria-label='What workers hold'] tbody tr").evaluateAll((all) => all.map((row) => row.cells[0].textContent));
  assert.deepEqual(held.sort(), ledger.workers.map((one) => one.name).sort());
  await clean(opened);
});

test("Configuration: what the file says and what is in force, right and wrong", async () => {
  const opened = await page_of("configuration");
  const { page } = opened;
  const effective = await (await fetch(gateway.admin + "/v1/config?form=effective")).text();
  assert.equal(await page.locator("pre[aria-label='In force, with all that the file leaves out']").textContent(), effective);
  assert.ok(effective.includes("threads = 1\n"));
  assert.equal((await fetch(gateway.admin + "/v1/config?form=file")).status, 200);
  assert.equal((await fetch(gateway.admin + "/v1/config?form=no")).status, 400);
  assert.equal((await fetch(gateway.admin + "/v1/config/state", { method: "PUT", body: config(1) })).status, 405);
  await shows(page, "The file says what is in force.");

  write(config(2)); // takes a new start
  await shows(page, "in force with a new start only: threads");
  await page.waitForFunction(() => document.querySelector("pre .new") !== null);
  assert.deepEqual(await page.locator("pre .gone, pre .new").allTextContents(), ["- threads = 1\n", "+ threads = 2\n"]);
  assert.match(await (await fetch(gateway.admin + "/v1/config?form=effective")).text(), /^threads = 1$/m);
  await picture(page, "configuration-differs");

  write(config(2, `weight = "${kHostile}"`));
  await shows(page, "all stayed as it was:");
  assert.match(await page.locator(".wrong").first().textContent(), /gateway.toml:\d+: .*weight/);
  assert.equal((await fetch(gateway.admin + "/v1/config?form=file")).status, 400);
  assert.match(await (await fetch(gateway.admin + "/v1/config?form=effective")).text(), /weight = 3/);

  write(config(1, "weight = 1"));
  await shows(page, "The file says what is in force.");
  assert.equal(await page.locator(".wrong").first().textContent(), "");
  const state = await json("/v1/config/state");
  assert.deepEqual([state.file, state.error, state.takes_new_start], [file, "", []]);
  const { routes } = await json("/v1/routes");
  assert.deepEqual(routes, [{ model: "one", tenant: "*", sticky: "none", arms: [{ arm: "near", pool: "near", weight: 1 }, { arm: kHostile, pool: "gone", weight: 1 }], shadow: null, fallback: [], rollout: null }]);
  await clean(opened);
});

test("a page that nothing feeds is not there", async () => {
  write(config(1).replace(/\n\[\[pool\]\]\nname = "gone"[^]*$/, "\n"));
  for (let i = 0; i < 100 && (await json("/v1/routes")).routes.length > 0; ++i) await new Promise((resolve) => setTimeout(resolve, 100));
  const { page, context } = await open_page(browser, gateway.admin + "/console");
  await page.waitForSelector("nav a");
  assert.deepEqual(await page.locator("nav a").allTextContents(), ["Fleet", "Scaling", "Requests", "Routing", "Health", "Configuration"]);
  await context.close();
});

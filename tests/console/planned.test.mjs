// What a gateway's pages compute and change: Capacity, what if, Chains' sums, another configuration by the keyboard; each number beside the API's, on
// random answers, too. All pages of it are looked at.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { every, full, looks, open_browser, open_page, picture } from "./browser.mjs";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "pelton-planned-"));
const at = (name) => path.join(folder, name);
const model = path.resolve("one");
const script = path.resolve("script.json");
const capacity = new URL("../deploy/capacity.toml", `file://${fs.realpathSync("console")}/`);
const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const kHostile = "<img/src=x/onerror=hit(1)>";
let browser;
let gateway;
let said = "";
let loading = true;
let load;

const config = (more = "") => `[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
keys_file = "${at("keys")}"
${more}
[autoscaler]
state_dir = "${at("state")}"

[[pool]]
name = "scripted"
model = "one"

[pool.scale]
min = 1
max = 3
window = 6
concurrency_target = 2

[pool.launch]
serve = ["${model}", "--executor", "modelled:${script}", "--max-num-seqs", "4"]
start_seconds = 1

[[pool]]
name = "gone"
model = ["two"]

[[worker]]
pool = "gone"
url = "http://127.0.0.1:3"

[[route]]
model = "one"
to = [{pool = "scripted", weight = 1}]
`;
const write = (text) => fs.writeFileSync(at("gateway.toml"), text);
const headers = { "Content-Type": "application/json", Authorization: "Bearer key-of-bob" };

async function lane() {
  while (loading) {
    const answer = await fetch(gateway.url + "/v1/chat/completions", { method: "POST", headers,
      body: JSON.stringify({ model: "one", messages: [{ role: "user", content: "long " + Math.random() }], max_tokens: 400 }) });
    await answer.text();
  }
}
before(async () => {
  browser = await open_browser();
  fs.writeFileSync(at("keys"), "key-of-ann ann role=admin\nkey-of-bob bob\n");
  fs.copyFileSync(capacity, at("capacity.toml"));
  fs.mkdirSync(at("chains"));
  fs.writeFileSync(at("chains/pieces.toml"), `name = "pieces"
input = {documents = "[string]", task = "string"}
output = {text = "\${joined.text}", more = "\${more.text}", perhaps = "\${perhaps.text}"}
[[step]]
name = "answers"
use = "model:one"
for_each = "\${input.documents}"
with = {prompt = "\${input.task} \${item}"}
[[step]]
name = "joined"
use = "builtin:join"
with = {parts = "\${answers[*].text}", separator = "; "}
[[step]]
name = "perhaps"
use = "model:one"
when = "\${length(input.documents) > 99}"
with = {prompt = "\${joined.text}"}
[[step]]
name = "more"
use = "model:one"
with = {prompt = "\${input.task} \${joined.text}", max_tokens = 20}
`);
  fs.writeFileSync(at("chains/wrong.toml"), `name = "wrong"
input = {text = "string"}
output = {value = "\${read.value}"}
[[step]]
name = "read"
use = "builtin:json"
with = {text = "\${input.text}"}
`);
  write(config());
  const child = spawn(process.env.PELTON, ["gateway", "--config", at("gateway.toml"), "--with-autoscaler", "--console", "all", "--record-facts", at("facts.jsonl"),
    "--capacity", at("capacity.toml"), "--chains", at("chains")], { stdio: ["ignore", "pipe", "pipe"] });
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
  load = Promise.all([lane(), lane(), lane(), lane(), lane()]);
  const run = (name, input) => fetch(`${gateway.url}/v1/chains/${name}`, { method: "POST", headers, body: JSON.stringify({ input }) }).then((answer) => answer.status);
  assert.deepEqual(await Promise.all([run("pieces", { documents: ["a", "b"], task: "Say" }), run("pieces", { documents: [], task: "Say" }), run("wrong", { text: "no" })]), [200, 200, 422]);
});
after(async () => {
  loading = false;
  await load;
  await browser.close();
  gateway.child.kill("SIGTERM");
  await gateway.over;
  fs.rmSync(folder, { recursive: true });
});

const json = async (target) => (await fetch(gateway.admin + target)).json();
const plain = (text) => text.replace(/\u202f/g, "");
const table = (page, label) => page.locator(`.table[aria-label="${label}"] tbody tr`).evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent.replace(/\u202f/g, ""))));
const fact = async (page, name) => plain(await page.locator(".fact", { hasText: name }).first().locator("dd").textContent());
const shows = (page, text) => page.waitForFunction((wanted) => document.querySelector("main").innerText.includes(wanted), text, { timeout: 30000 });
async function clean({ page, seen, context }, allowed = /^$/) {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing is wider than the page");
  assert.deepEqual([seen.errors.filter((text) => !allowed.test(text)), seen.foreign, seen.hits], [[], [], 0]);
  await context.close();
}
const page_of = (name, options = {}) => open_page(browser, `${gateway.admin}/console#${name}`, options);

// As a page writes them.
const digits = (value) => String(Number(value.toPrecision(4)));
const percent = (value) => (value * 100).toFixed(1) + " %";
const time = (seconds) => {
  if (seconds === null) return "nothing yet";
  const ms = seconds * 1000;
  return ms < 10 ? ms.toFixed(1) + " ms" : ms < 1000 ? ms.toFixed(0) + " ms" : (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";
};
// A generator of its own, so that a seed is a run.
const seed = Number(process.env.PELTON_SEED ?? Math.floor(Math.random() * 2 ** 30));
console.log("PELTON_SEED", seed);
let state = seed;
const random = () => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
};
const below = (count) => Math.floor(random() * count);

// Until there is something to be played.
async function decided(page) {
  for (let i = 0; i < 300 && (fs.readFileSync(at("facts.jsonl"), "utf8").match(/"decision"/g) ?? []).length < 4; ++i) await page.waitForTimeout(100);
}

async function capacity_says(page, plan) {
  assert.equal(await fact(page, "Everything can be kept"), plan.possible ? "yes" : "no");
  assert.deepEqual((await table(page, "Machines to be had")).map((row) => [row[0], row[4], row[5], row[6], row[7], row[8], row[9]]), plan.entries.map((one) => [one.name, digits(one.price_per_hour),
    `${one.machines} of ${one.quota}`, one.per_hour.toFixed(2), `${time(one.lead_p50_s)}, ${time(one.lead_p90_s)}`, percent(one.stock), digits(one.reclaim_per_hour)]));
  assert.deepEqual((await table(page, "Ways to run a model")).map((row) => [row[0], row[3]]), plan.variants.map((one) => [one.name, digits(one.rate)]));
  assert.deepEqual((await table(page, "Demand by where it may be served")).map((row) => [row[0], row[2], row[3]]), plan.demands.map((one) => [one.model, digits(one.rate), digits(one.answer_kb)]));
  if (!plan.possible) {
    const lines = await page.locator(".shortfalls li").allTextContents();
    assert.equal(lines.length, plan.shortfalls.length);
    plan.shortfalls.forEach((one, i) => assert.ok(lines[i].includes(`${digits(one.wanted)} requests/s are asked, ${digits(one.given)} are possible`), lines[i]));
    assert.equal(await page.locator('.table[aria-label="Placements"]').isVisible(), false);
    return;
  }
  assert.equal(await fact(page, "Per hour"), `${plan.per_hour.toFixed(2)} ${plan.currency}`);
  const placements = await table(page, "Placements");
  assert.deepEqual(placements.map((row) => row.slice(0, 5)), plan.placements.map((one) => [one.model, one.variant, one.capacity, String(one.replicas), String(one.running)]));
  plan.placements.forEach((one, i) => assert.ok(placements[i][5].includes(one.runner_up ? `dearer by ${digits(Math.max(0, one.runner_up.dearer_by))}/h` : "needed"), placements[i][5]));
  assert.deepEqual(await table(page, "Demand"), plan.models.map((one) => [one.model, digits(one.demand), digits(one.served), percent(one.may_grow_by), one.tightest]));
  assert.deepEqual((await table(page, "What is lost at once, and what brings it back")).map((row) => row.slice(0, 3)), plan.losses.map((one) => [one.without, percent(one.share_at_once), one.model]));
}

test("Capacity says what the API says, of what is lost, too", full, async () => {
  const opened = await page_of("capacity");
  const { page } = opened;
  await shows(page, "Per hour");
  await capacity_says(page, await json("/v1/capacity"));
  for (const place of ["north/eu", "south-l40s"]) {
    await page.getByLabel("As if this were lost").selectOption(place);
    await page.waitForFunction(() => document.querySelector("main .state[role=status]").textContent === "");
    await capacity_says(page, await json("/v1/capacity?without=" + encodeURIComponent(place)));
  }
  await clean(opened);
});

// A random file, of names that are hostile.
function some_capacity(is_much) {
  const count = 2 + below(4);
  const of = (n, make) => Array.from({ length: n }, (_, i) => make(i)).join("\n");
  return `[plan]\nsurvive = ["zone"]\nsurvive_share = ${(below(9) / 10).toFixed(1)}\n` + of(count, (i) => `[[capacity]]\nname = "e${i}${kHostile}"\nprovider = "p${below(2)}"\nregion = "r"\nzone = "${i}"\nmachine = "m${i % 2}"
kind = "${["on_demand", "spot", "reserved"][below(3)]}"\nprice_per_hour = ${(random() * 20).toFixed(3)}\nquota = ${1 + below(9)}\nstock = ${(0.1 + random() * 0.9).toFixed(3)}\nlead_p50_s = ${1 + below(900)}\nlead_p90_s = ${901 + below(9000)}`) +
    "\n" + of(2, (i) => `[[variant]]\nname = "v${i}"\nmodel = "x"\nmachine = "m${i}"\nmachines = ${1 + below(2)}\nrate = ${(0.1 + random() * 8).toFixed(3)}`) +
    `\n[[demand]]\nmodel = "x"\nrate = ${((is_much ? 500 : 0.1) + random() * 12).toFixed(3)}\nanswer_kb = ${below(100)}\n`;
}

test("Capacity of random files", full, async () => {
  const opened = await page_of("capacity");
  const { page } = opened;
  await shows(page, "Per hour");
  let possible = 0;
  const rounds = 30;
  for (let i = 0; i < rounds; ++i) {
    fs.writeFileSync(at("capacity.toml"), some_capacity(i % 3 === 0));
    await page.evaluate(() => document.querySelector("#without").dispatchEvent(new Event("change")));
    await page.waitForFunction(() => document.querySelector("main .state[role=status]").textContent === "" && document.querySelector("#without").value === "");
    const plan = await json("/v1/capacity");
    assert.equal(plan.error, undefined, fs.readFileSync(at("capacity.toml"), "utf8"));
    await capacity_says(page, plan);
    possible += plan.possible;
  }
  assert.ok(possible > 0 && possible < rounds, `${possible} of ${rounds} were possible`);
  fs.copyFileSync(capacity, at("capacity.toml"));
  await clean(opened);
});

test("what if: what the page shows is what the route said, and a wrong knob is named", full, async () => {
  const opened = await page_of("scaling");
  const { page } = opened;
  await page.waitForFunction(() => (document.querySelector("form.ask select")?.options.length ?? 0) > 0);
  await decided(page);
  await page.getByLabel("Other knobs").fill("scale_down_delay=120 max=2");
  const [answer] = await Promise.all([page.waitForResponse(/v1\/whatif/), page.getByRole("button", { name: "Play" }).click()]);
  const { searchParams } = new URL(answer.url());
  assert.deepEqual([searchParams.get("pool"), searchParams.get("last"), searchParams.getAll("set")], ["scripted", "1h", ["scale_down_delay=120", "max=2"]]);
  const { runs, decisions } = await answer.json();
  assert.deepEqual(runs.map((run) => run.name), ["recorded", "played", "scale_down_delay=120, max=2"]);
  assert.deepEqual(["late", "lost", "left", "failed_starts"].map((figure) => runs[0].figures[figure]), [null, null, null, null]);
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length >= 3);
  const known = (seconds) => (seconds === null ? "not known" : time(seconds));
  const shown = await table(page, "What was recorded, and what was played");
  assert.deepEqual(shown.map((row) => row.slice(1)), runs.map(({ figures: of }) => [of.replica_hours.toFixed(3), String(of.most), `${of.started} (${of.failed_starts ?? "not known"})`, String(of.direction_changes),
    String(of.requests), of.late === null ? "not known" : String(of.late), known(of.held_mean_s), `${known(of.ttft_p50_s)}, ${known(of.ttft_p99_s)}`, of.cost === null ? "not known" : of.cost.toFixed(2)]));
  assert.ok(plain(await page.locator("main").innerText()).includes(`${decisions} decisions in`));
  for (const wrong of ["maxx=3", kHostile]) {
    await page.getByLabel("Other knobs").fill(wrong);
    await page.getByRole("button", { name: "Play" }).click();
    await page.waitForFunction((text) => [...document.querySelectorAll(".panel .wrong")].some((one) => one.textContent.includes(text)), wrong);
  }
  await clean(opened, /400/);
});

test("whoever comes second waits for the first", full, async () => {
  const opened = await page_of("capacity");
  const { page } = opened;
  let tries = 0;
  await page.route("**/v1/capacity", (route) => (++tries <= 2 ? route.fulfill({ status: 503, headers: { "Retry-After": "1" }, body: "{}" }) : route.continue()));
  await page.reload();
  await shows(page, "Per hour");
  assert.equal(tries, 3);
  await clean(opened, /503/);
});

// The samples of a page of metrics, each with another value.
async function random_metrics(page, of) {
  const text = (await (await fetch(gateway.admin + "/metrics")).text()).split("\n").map((line) => {
    const match = of.test(line) && /^([a-z_]+(?:\{.*\})?) \S+$/.exec(line);
    return match ? `${match[1]} ${/seconds_sum/.test(match[1]) ? (random() * 40).toFixed(4) : below(10000000)}` : line;
  }).join("\n");
  await page.unroute("**/metrics");
  await page.route("**/metrics", (route) => route.fulfill({ body: text, contentType: "text/plain" }));
  const answered = page.waitForResponse(/metrics/);
  await page.waitForResponse(/metrics/); // the one of the answer before
  await answered;
  await page.waitForTimeout(100);
  return (begin) => Number(text.split("\n").find((line) => line.startsWith(begin + " "))?.slice(begin.length));
}

test("Chains' sums are the metrics', and so are random ones", full, async () => {
  const opened = await page_of("chain_figures");
  const { page } = opened;
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 7);
  const runs = await table(page, "Runs");
  assert.deepEqual(runs.map((row) => row.slice(0, 7)), [["pieces", "0", "2", "0", "0", "0", "0"], ["wrong", "0", "0", "1", "0", "0", "0"]]);
  assert.deepEqual((await table(page, "Steps")).map((row) => row.slice(1, 5)), [["answers", "2", "0", "0"], ["joined", "2", "0", "0"], ["perhaps", "0", "2", "0"], ["more", "2", "0", "0"], ["read", "0", "0", "0"]]);
  for (let i = 0; i < 3; ++i) {
    const value = await random_metrics(page, /^pelton_chain_/);
    const mean = (begin, labels) => time(value(`${begin}_count{${labels}}`) > 0 ? value(`${begin}_sum{${labels}}`) / value(`${begin}_count{${labels}}`) : null);
    assert.deepEqual(await table(page, "Runs"), ["pieces", "wrong"].map((chain) => [chain, String(value(`pelton_chain_runs_open{chain="${chain}"}`)),
      ...["ok", "step_failed", "deadline", "left", "refused"].map((outcome) => String(value(`pelton_chain_runs_total{chain="${chain}",outcome="${outcome}"}`))),
      mean("pelton_chain_run_seconds", `chain="${chain}"`)]));
    for (const row of await table(page, "Steps")) {
      const labels = `chain="${row[0]}",step="${row[1]}"`;
      const of = (name) => String(value(`pelton_chain_step_${name}{${labels}}`));
      assert.deepEqual([row[2], row[3], row[4], row[5], row[7]], [of("seconds_count"), of("skipped_total"), of("retries_total"), mean("pelton_chain_step_seconds", labels),
        `${of("prompt_tokens_total")} + ${of("output_tokens_total")}`]);
    }
  }
  await clean(opened);
});

test("Health and Splits of random metrics", full, async () => {
  const opened = await page_of("health");
  const { page } = opened;
  await shows(page, "Connection refused");
  for (let i = 0; i < 3; ++i) {
    const value = await random_metrics(page, /^pelton_gateway_(retries_total|ejections_total|migrations_total|limited_total|retry_budget|suspects|quarantined_total|streams_interrupted_total|unserved_total)/);
    for (const [name, metric] of [["Retries that may be made now", "retry_budget"], ["Requests under suspicion now", "suspects"], ["Requests refused as they end workers", "quarantined_total"],
      ["Streams interrupted", "streams_interrupted_total"], ["Refused by the gateway", "unserved_total"]]) {
      assert.equal(await fact(page, name), String(value("pelton_gateway_" + metric)), name);
    }
    const rows = (await table(page, "What was done about failures, since the gateway began")).filter((row) => row[1] === "Tried again at another worker");
    assert.ok(rows.length > 3);
    for (const row of rows) assert.equal(row[0], String(value(`pelton_gateway_retries_total{reason="${row[2].replace(/ /g, "_")}"}`) || value(`pelton_gateway_retries_total{reason="${row[2]}"}`)));
    const lost = ['retries_total{reason="lost"}', 'retries_total{reason="down"}', 'migrations_total{kind="cold",result="continued"}', 'migrations_total{kind="cold",result="failed"}'];
    assert.equal(await fact(page, "Requests whose worker was lost"), String(lost.reduce((sum, name) => sum + value("pelton_gateway_" + name), 0)));
  }
  await page.evaluate(() => { location.hash = "#splits"; });
  await page.waitForFunction(() => document.body.dataset.page === "splits" && document.querySelectorAll("tbody tr").length === 1);
  for (let i = 0; i < 3; ++i) {
    const value = await random_metrics(page, /^pelton_gateway_arm_(requests|answers)_total/);
    const [row] = await table(page, "Arms");
    const labels = 'model="one",arm="scripted",traffic="clients"';
    assert.deepEqual(row.slice(4, 9), [String(value(`pelton_gateway_arm_requests_total{${labels}}`)),
      ...["ok", "client_error", "error", "left"].map((outcome) => String(value(`pelton_gateway_arm_answers_total{${labels},outcome="${outcome}"}`)))]);
  }
  await clean(opened);
});

test("metrics that are no numbers, and a clock that is days off, leave pages that can be read", full, async () => {
  for (const name of ["health", "splits", "chain_figures"]) {
    const opened = await page_of(name);
    const { page } = opened;
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length > 0);
    for (const value of ["NaN", "+Inf", "-Inf", "1e308"]) {
      const text = (await (await fetch(gateway.admin + "/metrics")).text()).replace(/^(pelton_[a-z_]+(?:\{.*\})?) \S+$/gm, `$1 ${value}`);
      await page.unroute("**/metrics");
      await page.route("**/metrics", (route) => route.fulfill({ body: text, contentType: "text/plain" }));
      for (let i = 0; i < 2; ++i) await page.waitForResponse(/metrics/);
      await page.waitForTimeout(100);
      assert.doesNotMatch(await page.locator("main").innerText(), /NaN|undefined|Infinity/, `${name} ${value}`);
    }
    await clean(opened);
  }
  const opened = await page_of("fleet");
  const { page } = opened;
  await shows(page, "scripted-");
  await page.evaluate(() => { Date.now = () => 0; });
  await page.evaluate(() => { location.hash = "#scaling"; });
  await shows(page, "Every term");
  await page.waitForTimeout(1500);
  assert.doesNotMatch(await page.locator("main").innerText(), /NaN|undefined|Invalid/);
  assert.ok(await page.locator("path.curve").count() > 0);
  await clean(opened);
});

test("by the keyboard alone: another configuration is tried, asked about once more, applied", async () => {
  const opened = await page_of("configuration");
  const { page } = opened;
  await shows(page, "The file says what is in force.");
  const press = async (...all) => { for (const key of all) await page.keyboard.press(key); };
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  const tab_to = async (text) => {
    for (let i = 0; i < 40 && (await focused()) !== text; ++i) await press("Tab");
    assert.equal(await focused(), text);
  };
  const visible = (name) => page.getByRole("button", { name, exact: true }).isVisible();
  assert.equal(await visible("Edit the file"), false);
  await tab_to("Sign in");
  await press("Enter");
  await page.keyboard.type("key-of-ann");
  await press("Enter");
  await page.waitForFunction(() => document.querySelector(".who-signed-in").textContent === "ann");
  await tab_to("Edit the file");
  await press("Enter");
  await page.waitForFunction(() => document.activeElement.tagName === "TEXTAREA");
  assert.equal(await visible("Apply …"), false, "not before it has been tried");

  // Nothing, something wrong, something right.
  await press("Tab", "Enter");
  await shows(page, "It says what the file says.");
  await press("Shift+Tab", "Control+Home");
  await page.keyboard.type("nonsense = 1\n");
  await press("Tab", "Enter");
  await shows(page, "It is wrong, and would change nothing:");
  assert.equal(await visible("Apply …"), false);
  await press("Shift+Tab", "Control+Home", "Shift+ArrowDown", "Delete", "ArrowDown");
  await page.keyboard.type("retry_budget = 0.3\nthreads = 2\n");
  await press("Tab", "Enter");
  await shows(page, "It is right. Nothing is changed yet.");
  await shows(page, "In force with a new start only: threads");
  assert.deepEqual(await page.locator("pre[aria-label='Lines that would change'] span").allTextContents(), ["+ retry_budget = 0.3\n", "+ threads = 2\n"]);
  await picture(page, "configuration-dry-run");
  assert.equal(fs.readFileSync(at("gateway.toml"), "utf8"), config());

  await tab_to("Apply …");
  await press("Enter");
  await page.getByRole("dialog", { name: "Apply this configuration?" }).waitFor();
  assert.ok((await page.getByRole("dialog").innerText()).includes("2 lines come, 0 go"));
  assert.equal(await focused(), "Cancel", "what does nothing comes first");
  await press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog"));
  assert.equal(fs.readFileSync(at("gateway.toml"), "utf8"), config());
  await tab_to("Apply …");
  await press("Enter");
  await page.getByRole("dialog").waitFor();
  await press("Shift+Tab", "Enter");
  await shows(page, "Applied.");
  assert.equal(fs.readFileSync(at("gateway.toml"), "utf8"), config().replace("[gateway]\n", "[gateway]\nretry_budget = 0.3\nthreads = 2\n"));
  assert.match(await (await fetch(gateway.admin + "/v1/config?form=effective")).text(), /^retry_budget = 0.3$/m);
  await shows(page, "in force with a new start only: threads");
  assert.match(said, /audit: ann from 127.0.0.1: configure: done/);
  assert.equal(await focused(), "Edit the file");

  // Somebody else writes it meanwhile.
  await press("Enter");
  await page.waitForFunction(() => document.activeElement.tagName === "TEXTAREA");
  await press("Control+Home");
  await page.keyboard.type("# mine\n");
  await press("Tab", "Enter");
  await shows(page, "It is right. Nothing is changed yet.");
  write(config("retry_budget = 0.4"));
  await tab_to("Apply …");
  await press("Enter");
  await page.getByRole("dialog").waitFor();
  await press("Shift+Tab", "Enter");
  await shows(page, "The file has changed since it was read.");
  assert.equal(fs.readFileSync(at("gateway.toml"), "utf8"), config("retry_budget = 0.4"));
  assert.match(said, /configure: refused: changed meanwhile/);
  await clean(opened, /40[0-9]|412/);
});

test("Configuration's history: who changed what, and back to what was", async () => {
  const history = async () => (await (await fetch(gateway.admin + "/v1/config/history")).json()).entries;
  write(config("retry_budget = 0.5"));
  for (let i = 0; i < 100 && !(await history()).at(-1).changes.some((line) => line.includes("0.5")); ++i) await new Promise((done) => setTimeout(done, 100));
  const entries = await history();
  const opened = await page_of("configuration");
  const { page } = opened;
  const rows = page.locator(".history details");
  await rows.nth(entries.length - 1).waitFor();
  assert.equal(await rows.count(), entries.length);
  assert.ok((await rows.first().locator("summary").innerText()).startsWith(`${entries.at(-1).n} · `), "the latest first");

  const by_ann = entries.findIndex(({ who }) => who === "ann");
  assert.ok(by_ann > 0);
  const row = rows.nth(entries.length - 1 - by_ann);
  assert.ok((await row.locator("summary").innerText()).includes(" · ann"));
  await row.locator("summary").click();
  await row.locator("pre span").first().waitFor();
  assert.deepEqual(await row.locator("pre span").allTextContents(), ["+ retry_budget = 0.3\n", "+ threads = 2\n"]);
  const back = row.getByRole("button", { name: `Go back to ${entries[by_ann].n} …` });
  assert.equal(await back.isVisible(), false, "not before who asks has signed in");
  await picture(page, "configuration-history");

  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByLabel("Operator's key").fill("key-of-ann");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector(".who-signed-in").textContent === "ann");
  await back.click();
  await shows(page, "It is right. Nothing is changed yet.");
  assert.deepEqual(await page.locator("pre[aria-label='Lines that would change'] span").allTextContents(),
    ["+ retry_budget = 0.3\n", "+ threads = 2\n", "- retry_budget = 0.5\n", "+ \n"]);
  await page.getByRole("button", { name: "Apply …" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Apply", exact: true }).click();
  await shows(page, "Applied.");
  const text = await (await fetch(`${gateway.admin}/v1/config/history/${entries[by_ann].n}`)).text();
  assert.equal(fs.readFileSync(at("gateway.toml"), "utf8"), text);
  await page.waitForFunction((count) => document.querySelectorAll(".history details").length === count, entries.length + 1);
  assert.equal(await rows.nth(entries.length - by_ann).evaluate((one) => one.open), true, "what was opened stays so");
  write(config());
  await clean(opened);
});

test("without the session, the token or the page nothing is written", full, async () => {
  const opened = await page_of("configuration");
  const { page } = opened;
  const before = fs.readFileSync(at("gateway.toml"), "utf8");
  const tried = (url, more = {}) => page.evaluate(async ([to, of]) => (await fetch(to, { method: "PUT", body: "[gateway]", headers: of })).status, [url, more]);
  assert.equal(await tried("console/config"), 401);
  assert.equal(await tried("console/config?dry_run=true"), 401);
  assert.equal(await tried("v1/config"), 403);
  assert.equal(await tried("v1/config?dry_run=true"), 403);
  await page.click(".who-signed-in");
  await page.getByLabel("Operator's key").fill("key-of-ann");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Edit the file" }).waitFor();
  assert.equal(await tried("console/config"), 403, "no token");
  assert.equal(await tried("console/config", { "X-Pelton-Token": "0".repeat(64) }), 403);
  assert.equal(await page.evaluate(async () => (await fetch("console/config", { method: "POST" })).status), 405);
  assert.equal(fs.readFileSync(at("gateway.toml"), "utf8"), before);
  await clean(opened, /40[0-9]/);
});

async function nothing_serious(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ["wcag2a", "wcag2aa"] }));
  assert.deepEqual(violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) => [one.id, one.nodes.map((node) => node.html)]), [], name);
}

test("looked at", async () => {
  const { pages } = await json("/console/config.json");
  assert.deepEqual(pages, ["fleet", "scaling", "capacity", "requests", "routing", "splits", "chain_figures", "health", "configuration"]);
  const settled = { fleet: "scripted", scaling: "Every term", capacity: "Per hour", requests: "By pool", routing: "Explain", splits: "Share meant", chain_figures: "pieces", health: "Connection refused",
    configuration: "[gateway]" };
  const seen_elsewhere = ["fleet", "scaling", "requests", "configuration"]; // by fleet.test.mjs, and by the keyboard above
  for (const [width, viewport, colorScheme] of looks) {
    for (const name of every ? pages : pages.filter((one) => !seen_elsewhere.includes(one))) {
      const opened = await page_of(name, { viewport, colorScheme });
      const { page } = opened;
      await shows(page, settled[name]);
      if (["fleet", "scaling", "requests"].includes(name)) await page.waitForFunction(() => [...document.querySelectorAll(".plot")].every((plot) => plot.querySelector("path.curve")));
      if (name === "routing") {
        await page.getByLabel("Message").fill("Why there?");
        await page.getByRole("button", { name: "Explain" }).click();
        await shows(page, "Goes to");
      }
      if (name === "scaling" && width === "1440") {
        await decided(page);
        await page.getByLabel("Other knobs").fill("max=1");
        await page.getByRole("button", { name: "Play" }).click();
        await shows(page, "played, same knobs");
      }
      if (every) await nothing_serious(page, name);
      await picture(page, `all-${name}-${width}-${colorScheme}`, true);
      await clean(opened);
    }
  }
});

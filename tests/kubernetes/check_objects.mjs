// Are these Kubernetes objects? Values by the validators of kubernetes-models (unknown fields pass them), fields by the types of
// kubernetes-types under tsc (object literals with an unknown field do not compile).
//
// usage: check_objects.mjs FILE   JSON of [{name, object, typed}], run in the folder with node_modules; only those that are `typed` are
// compiled, as the compiler takes a while
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const FOREIGN = { "keda.sh": "@kubernetes-models/keda", "monitoring.coreos.com": "@kubernetes-models/prometheus-operator" };

function modelsOf(apiVersion) {
  return `${FOREIGN[apiVersion.split("/")[0]] ?? "kubernetes-models"}/${apiVersion}`;
}

function typeOf({ apiVersion, kind }) {
  const [group, version] = apiVersion.includes("/") ? apiVersion.split("/") : ["core", apiVersion];
  if (FOREIGN[group]) return { module: modelsOf(apiVersion), name: `I${kind}` };
  return { module: `kubernetes-types/${group.split(".")[0]}/${version}`, name: kind };
}

// npm has no types of these: their own fields by a list, and what is Kubernetes' in them as such.
const SHAPES = {
  LeaderWorkerSet: { replicas: "number", startupPolicy: "string", rolloutStrategy: { type: "string", rollingUpdateConfiguration: { maxSurge: "any", maxUnavailable: "any" } },
    leaderWorkerTemplate: { size: "number", restartPolicy: "string", leaderTemplate: "any", workerTemplate: "any" } },
  InferencePool: { selector: { matchLabels: "any" }, targetPorts: [{ number: "number" }],
    endpointPickerRef: { group: "string", kind: "string", name: "string", port: { number: "number" }, failureMode: "string" } },
};
function misfit(value, shape, where) {
  if (shape === "any") return null;
  if (typeof shape === "string") return typeof value === shape ? null : `${where} must be ${shape}`;
  if (Array.isArray(shape)) return value.map((one) => misfit(one, shape[0], where + "[]")).find(Boolean) ?? null;
  const other = Object.keys({ ...shape, ...value }).find((key) => !(key in shape) || !(key in value));
  return other ? `${where}.${other}: unknown or missing` : Object.keys(shape).map((key) => misfit(value[key], shape[key], `${where}.${key}`)).find(Boolean) ?? null;
}
function parts({ name, object, typed }) {
  if (!SHAPES[object.kind]) return [{ name, object, typed }];
  const why = misfit(object.spec, SHAPES[object.kind], "spec");
  if (why) {
    console.error(`${name}: ${why}`);
    ++wrong;
  }
  const group = object.spec.leaderWorkerTemplate ?? {};
  return [group.leaderTemplate, group.workerTemplate].filter(Boolean).map((template, i) => ({ name: `${name} template ${i}`, typed,
    object: { apiVersion: "v1", kind: "PodTemplate", metadata: object.metadata, template } }));
}

let wrong = 0;
const objects = JSON.parse(readFileSync(process.argv[2], "utf8")).flatMap(parts);
for (const { name, object } of objects) {
  const models = await import(modelsOf(object.apiVersion));
  try {
    if (!models[object.kind]) throw new Error(`there is no ${object.apiVersion} ${object.kind}`);
    new models[object.kind](object).validate();
  } catch (error) {
    console.error(`${name}: ${error.message}`);
    ++wrong;
  }
}

const lines = [];
for (const { name, object } of objects.filter((one) => one.typed)) {
  const { module, name: type } = typeOf(object);
  lines.push(`// ${name}`, `{ const one: import("${module}").${type} = ${JSON.stringify(object)}; void one; }`);
}
writeFileSync("objects.ts", lines.join("\n") + "\n");
const flags = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022", "objects.ts"];
try {
  execFileSync("node_modules/.bin/tsc", flags, { encoding: "utf8" });
} catch (error) {
  for (const line of error.stdout.split("\n").slice(0, 40)) {
    const place = /^objects\.ts\((\d+),/.exec(line);
    console.error(place ? `${lines[Number(place[1]) - 2]}: ${line}` : line);
  }
  ++wrong;
}
console.log(`${objects.length} objects, ${wrong} wrong`);
process.exit(wrong ? 1 : 0);

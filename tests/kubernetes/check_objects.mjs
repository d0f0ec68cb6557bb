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

const objects = JSON.parse(readFileSync(process.argv[2], "utf8"));
let wrong = 0;
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

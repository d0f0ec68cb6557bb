#!/usr/bin/env python3
"""The Helm chart, rendered by Go's templates and sprig as Helm does (tools/manifests): the plain manifests are what it makes, kustomize's overlays
too; whatever values the schema lets pass make sound objects or are refused with a reason; npm's validators and types of
Kubernetes accept all of them; kubectl applies them to a double of the API server.

usage: chart_test.py BINARY WORK_FOLDER     exit code 77 (skipped) unless PELTON_FULL=1
PELTON_SEED=N repeats a run of random values.
"""
import copy
import http.server
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
import unittest

import yaml

import gateway_fixture
import kubernetes_test
from json_handler import JsonHandler

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "pelton"
loader = importlib.machinery.SourceFileLoader("manifests", str(ROOT / "tools" / "manifests"))
manifests = importlib.util.module_from_spec(importlib.util.spec_from_loader("manifests", loader))
loader.exec_module(manifests)
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
WORK = None
RANDOM_FILES = 200

# A text for each pattern of the schema; one without a line here ends the test.
TEXTS = {
    r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$": ["1Gi", "512Mi", "2"],
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$": ["", "", "some-name", "a.b"],
    "^([a-z]([-a-z0-9]{0,28}[a-z0-9])?)?$": ["", "abc", "a-name-of-thirty-characters-xy"],
    "^[-._a-zA-Z0-9]+$": ["fleet.key", "A_key-1"],
    "^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$": ["a", "main", "long", "a-name-of-twenty-cha", "gateway-x"],
    "^([1-9][0-9]?|100)%$": ["25%", "100%"],
    "^[0-9]+(ms|s|m)$": ["15s"],
    "^([A-Za-z0-9_][-A-Za-z0-9._]{0,127})?$": ["", "0.1.0", "1.2-cuda_x"],
}
WORDS = ["plain", "a: b", '"quoted"', "it's", "{{ .Values }}", "# no", "on", "1e3", "007", "ü ✓", "back\\slash", "two\nlines", "$(HOME)"]
FLAGS = ["--max-num-seqs=4", "--log-level", "debug", "--open", "--device", "cpu"]


def resolve(node):
    while "$ref" in node:
        found = SCHEMA
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = {**found, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def some_text(draw, node, name):
    if "pattern" in node:
        return draw.choice(TEXTS[node["pattern"]])
    if name in ("podLabels", "podAnnotations", "labels", "annotations"):
        return draw.choice(["x", "1", "true"])
    return draw.choice(WORDS + ([] if node.get("minLength") else [""]))


def some_value(draw, node, name=""):
    """Any value that the schema allows."""
    node = resolve(node)
    if "enum" in node:
        return draw.choice(node["enum"])
    if "oneOf" in node:
        return some_value(draw, draw.choice(node["oneOf"]), name)
    kind = node["type"] if isinstance(node["type"], str) else draw.choice(node["type"])
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "integer":
        return draw.choice([node["minimum"], min(node["minimum"] + 3, node["maximum"]), node["maximum"]])
    if kind == "number":
        return draw.choice([node.get("minimum", 0.5), min(60, node.get("maximum", 60)), 0.5 if node.get("minimum", 0) <= 0.5 else min(100, node.get("maximum", 100))])
    if kind == "string":
        return some_text(draw, node, name)
    if kind == "array":
        if name == "args":
            return draw.sample(FLAGS, draw.randrange(3))
        many = [some_value(draw, node["items"], name) for _ in range(draw.randrange(node.get("minItems", 0), 4))]
        return [one for i, one in enumerate(many) if one not in many[:i]]
    return some_object(draw, node, name)


def some_object(draw, node, name):
    if "properties" not in node:
        if isinstance(node.get("additionalProperties"), dict):
            key = "cpu" if name in ("limits", "requests") else "a-key"
            return {key: some_value(draw, node["additionalProperties"], name)} if draw.random() < 0.5 else {}
        return {"matchLabels": {"a": "b"}} if name.endswith("Selector") else {}
    if name == "tolerations":
        return draw.choice([{"operator": "Exists"}, {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}])
    if name == "env":
        return {"name": draw.choice(["AN_OPTION", "OTHER"]), "value": draw.choice(WORDS)}
    if name in ("clients", "monitoring", "scalers"):
        return {"namespaceSelector": {"matchLabels": {"a": "b"}}}
    keys = [key for key in node["properties"] if key in node.get("required", ()) or draw.random() < 0.4]
    return {key: some_value(draw, node["properties"][key], key) for key in keys if key not in ("global", "affinity", "ipBlock")}


def some_values(draw):
    values = some_value(draw, {key: value for key, value in SCHEMA.items() if key != "definitions"})
    if draw.random() < 0.8:  # or all would be refused for the same few reasons
        values["access"] = draw.choice([{"open": True}, {"keysSecret": "keys"}])
        values["kind"] = draw.choice(["server", "fleet", "fleet"])
        if values["kind"] == "fleet":
            values["fleetKey"] = {**values.get("fleetKey", {}), "secretName": "key"}
            values["rankToken"] = {**values.get("rankToken", {}), "secretName": "ranks"}
            values.pop("inferencePool", None)
            values["autoscaler"] = {**values.get("autoscaler", {}), "enabled": True}
            values.pop(draw.choice(["keda", "hpa"]), None)
            values["pools"] = [{**some_value(draw, SCHEMA["properties"]["pools"]["items"]), "name": f"p{i}", "servedModelName": [f"m{i}", draw.choice(WORDS) + str(i)],
                                "scale": {"min": 1, "max": 3}} for i in range(draw.randrange(1, 4))]
            values["pools"] = [{key: value for key, value in pool.items() if key != "split" or draw.random() < 0.1} for pool in values["pools"]]
            if draw.random() < 0.3:  # one whose split is sound
                values["autoscaler"] |= {"enabled": False, "mode": "advise"}
                values = {key: value for key, value in values.items() if key not in ("keda", "hpa")}
                values["pools"][0] |= {"tokenizer": "/mnt/models/a", "nodes": 1, "args": ["--swap-space=1"],
                                       "split": {"mode": draw.choice(["auto", "always"]), **draw.choice([{}, {"prefill": {"replicaCount": 2}, "decode": {"replicaCount": 0}}])}}
            values["routes"] = [{"model": "m0", "to": [{"pool": "p0", "weight": draw.choice([1, 0.5])}], **draw.choice([{}, {"tenant": draw.choice(WORDS)}])}
                                for _ in range(draw.randrange(2))]
            values["tenants"] = [{"name": draw.choice(WORDS), "models": ["m0", draw.choice(WORDS)], "weight": 2}
                                 for _ in range(draw.randrange(2))] if "keysSecret" in values["access"] else []
        else:
            for key in ("pools", "autoscaler", "keda", "hpa", "routes", "tenants", "fleetKey", "rankToken"):
                values.pop(key, None)
            values.pop("podMonitor", None)
    return values


class Chart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.renderer = manifests.Renderer(cls.scratch.name)
        cls.own = manifests.chart_values()
        import jsonschema
        cls.schema = jsonschema.Draft7Validator(SCHEMA)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def objects(self, values, **more):
        """What Helm would install: the schema first, then the templates."""
        self.assertEqual([error.message for error in self.schema.iter_errors(manifests.merged(self.own, values))], [])
        (answer,) = self.renderer.render([values], **more)
        self.assertNotIn("error", answer)
        return [yaml.safe_load(text) for text in manifests.documents(answer)]

    def refusal(self, values):
        """By the schema or by the templates; none: there is none."""
        errors = [f"{error.json_path}: {error.message}" for error in self.schema.iter_errors(manifests.merged(self.own, values))]
        if errors:
            return " ".join(errors)
        (answer,) = self.renderer.render([values])
        return answer.get("error")

    def test_the_manifests_are_the_charts(self):
        self.assertEqual({path: text for path, text in manifests.written(self.renderer).items() if path.read_text() != text}, {})

    def test_the_schema_is_one(self):
        self.schema.check_schema(SCHEMA)
        self.assertEqual(list(self.schema.iter_errors(self.own)), [])

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kustomize_makes_the_same(self):
        """Two ways to one end: kustomize over the fleet's manifests, and the chart with the overlay's values."""
        for name in [*manifests.PLAIN, *manifests.OVER]:
            done = subprocess.run(["kubectl", "kustomize", manifests.FOLDERS / name], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            made = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
            for one in made.values():
                self.assertEqual(one["metadata"].pop("namespace"), "pelton")
            expected = {(one["kind"], one["metadata"]["name"]): one for one in self.objects(manifests.overlay_values(name), service="kubectl")}
            self.assertEqual(set(made), set(expected))
            for key, one in expected.items():
                self.assertEqual(made[key], one, f"{name} {key}")

    def test_what_is_wrong_is_refused_with_the_reason(self):
        fleet, split = manifests.overlay_values("fleet"), manifests.overlay_values("prefill-decode")

        def of(*path, base=fleet, value):
            values = copy.deepcopy(base)
            table = values
            for key in path[:-1]:
                table = table[key] if isinstance(table, list) else table.setdefault(key, {})
            table[path[-1]] = value
            return values

        def routed(**more):
            values = of("pools", 1, "servedModelName", value=["pelton-box"])
            return {**values, **more}
        cases = [
            ({}, "who may ask?"), (of("access", "open", value=True), "exclude each other"),
            (of("pools", 0, "nodes", value=2), "rankToken.secretName is missing"), ({"access": {"open": True}, "server": {"nodes": 2}}, "several nodes are a fleet's"),
            (of("pools", 0, "nodes", value=2) | {"rankToken": {"secretName": "a"}, "autoscaler": {"enabled": True, "mode": "act"}}, "nobody but replicaCount"),
            (of("pools", 0, "split", value={"mode": "auto"}), "split is not for pools whose replicas come and go"),
            *[(of("pools", 0, *path, base=split, value=value), reason) for path, value, reason in (
                (("nodes",), 2, "rankToken.secretName is missing|of one node each"), (("tokenizer",), "", "split: tokenizer is missing"),
                (("split", "decode", "args"), [], "args of its decode workers lack --swap-space"), (("split", "mode"), "often", "is not one of"),
                (("args",), ["--kv-port=1", "--swap-space=1"], "args has --kv-port, which split says itself"), (("split", "both"), {}, "'both' was unexpected"))],
            (split | {"pools": [*split["pools"], {"name": "main-decode", "servedModelName": ["x"]}]}, "another pool is called main-decode"),
            (fleet | {"inferencePool": {"enabled": True, "endpointPicker": {"name": "a"}}}, "inferencePool is for kind: server"),
            ({"access": {"open": True}, "inferencePool": {"enabled": True}}, "inferencePool.endpointPicker.name is missing"),
            (of("keda", value={"enabled": True}) | {"hpa": {"enabled": True}}, "two would write the replicas"),
            (of("autoscaler", "enabled", value=False) | {"keda": {"enabled": True}}, "autoscaler.enabled is false"),
            (of("autoscaler", "mode", value="act") | {"keda": {"enabled": True}}, "autoscaler.mode is act, beside keda or hpa"),
            (of("autoscaler", "mode", value="act") | {"hpa": {"enabled": True}}, "autoscaler.mode is act, beside keda or hpa"),
            (of("autoscaler", "mode", value="write"), "is not one of"),
            (of("autoscaler", "replicaCount", value=2), "several are for autoscaler.enabled with autoscaler.mode: act"),
            (of("pools", 0, "scale", "min", value=0) | {"hpa": {"enabled": True}}, "does not go to zero"),
            (of("pools", 0, "scale", "min", value=9), "scale.min is more than scale.max"),
            (of("pools", 1, "name", value="main"), "two pools are called main"), (of("pools", value=[]), "pools is empty"),
            (of("pools", 1, "name", value="gateway-pods"), "names of objects that begin so"),
            (of("pools", 1, "servedModelName", value=["pelton-box"]), "served twice, and none of routes"),
            *[(routed(routes=[{"model": "pelton-box", "to": [{"pool": "main", "weight": 1}], **more}, *others]), reason) for more, others, reason in (
                ({"to": [{"pool": "none", "weight": 1}]}, [], "no pool none has this model"), ({"to": []}, [], "non-empty|too short|enough"),
                ({"to": [{"pool": "main", "weight": 0}]}, [], "no weight is above 0"),
                ({"to": [{"pool": "main", "weight": 1}] * 2}, [], "to has the pool main twice"), ({"fallback": ["long"]}, [], "fallback is not for pools"),
                ({}, [{"model": "pelton-box", "to": [{"pool": "long", "weight": 1}]}], "one above takes all"), ({"sticky": "often"}, [], "is not one of"))],
            (fleet | {"routes": [{"model": "x", "to": [{"pool": "main", "weight": 1}]}]}, "no pool main has this model"),
            (fleet | {"tenants": [{"name": "a"}, {"name": "a"}]}, "two tenants are called a"), (fleet | {"tenants": [{"name": "a", "pool": "x"}]}, "there is no pool x"),
            (fleet | {"tenants": [{"name": "a"}], "access": {"open": True}}, "tenants are those of keys"), ({"access": {"open": True}, "routes": [{"model": "a", "to": [{"pool": "b", "weight": 1}]}]}, "are a fleet's"), (of("pools", 1, "servedModelName", value=[]), "servedModelName is missing"),
            (of("worker", "affinity", value={"nodeAfinity": {}}), "'nodeAfinity' was unexpected"),
            (of("gateway", "affinity", value={"podAntiAffinity": {"required": []}}), "'required' was unexpected"),
            (of("worker", "tolerations", value=[{"key": "a", "opertor": "Exists"}]), "'opertor' was unexpected"),
            (of("image", "tag", value="v1:2"), "does not match"),
            (of("fleetKey", "secretName", value=""), "fleetKey.secretName is missing"), (of("kind", value="server"), "pools are a fleet's"),
            (of("worker", "args", value=["--port=9"]), "which the chart gives itself"), (of("worker", "rollout", value={"maxSurge": 0}), "nothing could ever be rolled out"),
            (of("worker", "cache", value={"create": True, "claimName": "a"}), "exclude each other"),
            ({"access": {"keysSecret": "a"}, "podMonitor": {"enabled": True}}, "asks for a key at /metrics"),
            ({"access": {"open": True}, "autoscaler": {"enabled": True}}, "are for a fleet"),
            ({"access": {"open": True}, "fleetKey": {"secretName": "a"}}, "fleetKey and rankToken are a fleet's"),
            ({"access": {"open": True}, "rankToken": {"secretName": "a"}}, "fleetKey and rankToken are a fleet's"),
            ({"access": {"open": True}, "autoscaler": {"mode": "act"}}, "autoscaler.enabled is false: nobody would"),
            (of("autoscaler", value={"enabled": False, "mode": "act"}), "autoscaler.enabled is false: nobody would"),
            (of("pools", 0, "scale", "settings", value={"policy": "slo"}), "needs ttft, itl or both"), (of("pools", 0, "scale", "settings", value={"ttft": 2}), "are kept by policy: slo alone"),
            (of("pools", 0, "scale", value={"min": 1, "max": 2, "settings": {"standby": 2}}), "standby beside scale.min is more than scale.max"),
            # By the schema: types, limits, unknown names, wherever they stand.
            (of("gateway", "replicaCount", value="2"), "$.gateway.replicaCount: '2' is not of type 'integer'"),
            (of("gateway", "replicaCount", value=0), "less than the minimum"), (of("pools", 0, "replicas", value=2), "'replicas' was unexpected"),
            (of("servr", value={}), "'servr' was unexpected"), (of("worker", "shmSize", value="much"), "does not match"),
            (of("pools", 0, "scale", "settings", value={"windw": 60}), "'windw' was unexpected"), (of("kind", value="both"), "is not one of"),
            (of("worker", "podLabels", value={"pelton/pool": "x"}), "should not be valid under"), (of("networkPolicy", "clients", value=[{}]), "non-empty|properties|too few|enough"),
        ]
        self.assertIsNone(self.refusal(fleet))
        self.assertIsNone(self.refusal(of("pools", 0, "scale", value={"min": 1, "max": 3, "settings": {"policy": "slo", "ttft": 2, "percentile": 90, "standby": 1, "price": 2.5}})))
        for values, reason in cases:
            with self.subTest(reason):
                self.assertRegex(self.refusal(values) or "it is installed", reason if "|" in reason else re.escape(reason))

    def test_the_pages_examples_are_installed(self):
        """Each block of the page over the one that has keys and the fleet's key: a page that nobody could follow is none."""
        text = (manifests.ROOT / "docs" / "kubernetes.md").read_text()
        blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
        self.assertGreaterEqual(len(blocks), 3)
        for block in blocks:
            with self.subTest(block):
                self.assertIsNone(self.refusal(manifests.merged(blocks[0], block)))

    def test_of_several_autoscalers_one_leads(self):
        values = copy.deepcopy(manifests.overlay_values("autoscaled"))
        values["autoscaler"]["replicaCount"] = 2
        objects = self.objects(values)
        (scaler,) = [one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"] == "pelton-autoscaler"]
        self.assertEqual((scaler["spec"]["replicas"], scaler["spec"]["strategy"]["rollingUpdate"]), (2, {"maxSurge": 0, "maxUnavailable": 1}))
        (role,) = [one for one in objects if one["kind"] == "Role" and one["metadata"]["name"] == "pelton-autoscaler"]
        rights = [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]]
        self.assertIn((["configmaps"], None, ["create", "list", "get", "patch"]), rights)
        self.assertTrue(any(kinds == ["leases"] and "pelton-autoscaler" in (names or []) for kinds, names, _ in rights), rights)
        (file,) = [one["data"]["gateway.toml"] for one in objects if one["kind"] == "ConfigMap" and "gateway.toml" in one.get("data", {})]
        table = tomllib.loads(file)["autoscaler"]
        self.assertEqual((table["lead"], table["lease"].split("/")[1]), ("kubernetes", "pelton-autoscaler"))

    def test_a_pools_own_values_win_also_where_they_are_nothing(self):
        values = manifests.merged(manifests.overlay_values("fleet"), {"worker": {"drainDelaySeconds": 7, "cache": {"create": True}}})
        values["pools"][0] |= {"replicaCount": 0, "drainDelaySeconds": 0, "cache": {"create": False}, "rollout": {"maxSurge": 0, "maxUnavailable": 1}}
        objects = self.objects(values)
        spec = kubernetes_test.named(objects, "Deployment", "pelton-main")["spec"]
        self.assertEqual((spec["replicas"], spec["strategy"]["rollingUpdate"]), (0, {"maxSurge": 0, "maxUnavailable": 1}))
        args = spec["template"]["spec"]["containers"][0]["args"]
        self.assertEqual(args[args.index("--drain-delay-seconds") + 1], "0")
        self.assertEqual([one["metadata"]["name"] for one in objects if one["kind"] == "PersistentVolumeClaim"], ["pelton-long-cache"])

    def test_random_values(self):
        seed = int(os.environ.get("PELTON_SEED", random.randrange(1 << 30)))
        print("PELTON_SEED", seed)
        draw = random.Random(seed)
        many = [some_values(draw) for _ in range(RANDOM_FILES)]
        for values in many:
            self.assertEqual([error.message for error in self.schema.iter_errors(manifests.merged(self.own, values))], [], values)
        checked, found = kubernetes_test.Files(), []
        for i, (values, answer) in enumerate(zip(many, self.renderer.render(many))):
            if "error" in answer:
                self.assertIn("error calling fail: ", answer["error"], "an accident, no refusal")
                continue
            with self.subTest(values=values):
                objects = [yaml.safe_load(text) for text in manifests.documents(answer)]
                checked.expect_objects_fit(f"file {i}", objects)
                checked.expect_pods_are_confined_and_end_in_time(f"file {i}", objects, with_limits=False)
                self.expect_texts_arrive(values, objects)
                found += [{"name": f"file {i} {one['kind']} {one['metadata']['name']}", "object": one, "typed": i % 20 == 0} for one in objects]
        self.assertGreater(len({one["name"].split()[1] for one in found}), RANDOM_FILES // 3, "hardly any was installed")
        self.expect_valid(found)

    def expect_texts_arrive(self, values, objects):
        """What an operator wrote, letter by letter, at the program and in its file."""
        for workload in kubernetes_test.workloads(objects):
            args = kubernetes_test.container_of(workload)["args"]
            if args[0] == "serve" and "pool" not in str(workload["metadata"]["labels"]):
                self.assertEqual(args[1], values.get("server", {}).get("model", self.own["server"]["model"]))
        for one in objects:
            if one["kind"] != "ConfigMap":
                continue
            config = tomllib.loads(one["data"]["gateway.toml"])
            self.assertEqual([(pool["name"], pool["model"]) for pool in config["pool"]], [(pool["name"], pool["servedModelName"]) for pool in values["pools"]])
            self.assertEqual((config.get("route", []), config.get("tenant", [])), (values.get("routes", []), values.get("tenants", [])))

    def test_routes_and_tenants_are_what_a_gateway_takes(self):
        values = manifests.overlay_values("fleet")
        values["pools"][1]["servedModelName"] = ["pelton-box", "long"]
        values["routes"] = [{"model": "pelton-box", "tenant": "early", "to": [{"pool": "long", "weight": 1}], "sticky": "user"},
                            {"model": "pelton-box", "to": [{"pool": "main", "weight": 95}, {"pool": "long", "weight": 5}]}]
        values["gateway"] = {"discovery": "dns"}
        values["tenants"] = [{"name": "early", "models": ["pelton-box"], "pool": "long", "weight": 2}]
        objects = self.objects(values)
        text = kubernetes_test.named(objects, "ConfigMap", "pelton-gateway")["data"]["gateway.toml"]
        key = pathlib.Path(self.scratch.name) / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        keys = pathlib.Path(self.scratch.name) / "keys"
        keys.write_text("a-key early\n")
        file = pathlib.Path(self.scratch.name) / "gateway.toml"
        file.write_text(text.replace("/etc/pelton/fleet/fleet.key", str(key)).replace("/etc/pelton/keys/keys", str(keys))
                        .replace(kubernetes_test.MODEL_IN_IMAGE, str(gateway_fixture.BOX)))
        done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", file, "--check", "--allow-empty", "--open"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "the configuration is sound\n"), done.stderr)

    def expect_valid(self, found):
        folder = WORK / "objects"
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "package-lock.json", ".npmrc", "check_objects.mjs"):
            shutil.copy(ROOT / "tests" / "kubernetes" / file, folder)
        if not (folder / "node_modules").is_dir():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder, check=True, timeout=600)

        def check(objects):
            (folder / "found.json").write_text(json.dumps(objects))
            return subprocess.run(["node", "check_objects.mjs", "found.json"], cwd=folder, capture_output=True, text=True, check=False)
        plain = [{"name": f"{name} {one['kind']} {one['metadata']['name']}", "object": one, "typed": True}
                 for name in [*manifests.PLAIN, *manifests.OVER] for one in self.objects(manifests.overlay_values(name))]
        done = check([*plain, *found])
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        print(done.stdout.strip())
        # Would it see anything?
        for edit, reason in ((lambda one: one["spec"].update(replicas="two"), "replicas must be integer"), (lambda one: one["spec"].update(replica=2), "replica\"' does not exist")):
            wrong = copy.deepcopy(next(one for one in plain if one["object"]["kind"] == "Deployment"))
            edit(wrong["object"])
            done = check([wrong])
            self.assertEqual(done.returncode, 1)
            self.assertIn(reason, done.stderr)

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kubectl_applies_them(self):
        for name in [*manifests.PLAIN, *manifests.OVER]:
            with ApiDouble() as api:
                for second in (False, True):
                    done = subprocess.run(["kubectl", "apply", "-k", manifests.FOLDERS / name, "--validate=false", "--server", api.url, "--cache-dir", self.scratch.name + f"/{name}"],
                                          env={**os.environ, "KUBECONFIG": "/dev/null", "HOME": self.scratch.name}, capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    said = {line.rsplit(" ", 1)[1] for line in done.stdout.splitlines()}
                    self.assertLessEqual(said, {"unchanged", "configured"} if second else {"created"}, done.stdout)
                self.assertEqual({(one["kind"], one["metadata"]["name"]) for one in api.stored.values()},
                                 {(one["kind"], one["metadata"]["name"]) for one in self.objects(manifests.overlay_values(name))})


class ApiDouble:
    """As much of an API server as kubectl needs to apply objects: which kinds there are, and a place to keep them."""
    KINDS = {"v1": ["Service", "ServiceAccount", "ConfigMap", "PersistentVolumeClaim"], "apps/v1": ["Deployment", "StatefulSet"],
             "policy/v1": ["PodDisruptionBudget"], "networking.k8s.io/v1": ["NetworkPolicy"], "rbac.authorization.k8s.io/v1": ["Role", "RoleBinding"],
             "autoscaling/v2": ["HorizontalPodAutoscaler"], "keda.sh/v1alpha1": ["ScaledObject"], "monitoring.coreos.com/v1": ["PodMonitor"],
             "leaderworkerset.x-k8s.io/v1": ["LeaderWorkerSet"], "inference.networking.k8s.io/v1": ["InferencePool"]}

    def __init__(self):
        self.stored = {}
        double = self

        class Handler(JsonHandler):
            def do_GET(self):
                path = self.path.split("?")[0].rstrip("/")
                found = double.about(path) or double.stored.get(path)
                if found:
                    return self.whole(200, found)
                return self.whole(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})

            def do_POST(self):
                value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                double.stored[f"{self.path.split('?')[0]}/{value['metadata']['name']}"] = value
                self.whole(201, value)

            def do_PATCH(self):
                # Of a list that is replaced as a whole kubectl always sends a patch; it changes nothing.
                self.rfile.read(int(self.headers["Content-Length"]))
                self.whole(200, double.stored[self.path.split("?")[0]])

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def about(self, path):
        if path == "/version":
            return {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = [{"groupVersion": one, "version": one.split("/")[1]} for one in self.KINDS if "/" in one]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": one["groupVersion"].split("/")[0], "versions": [one], "preferredVersion": one} for one in groups]}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version not in self.KINDS:
            return None

        def plural(kind):
            return kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s")
        return {"kind": "APIResourceList", "groupVersion": version, "resources": [
            {"name": plural(kind), "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": ["get", "create", "patch"]} for kind in self.KINDS[version]]}

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    if os.environ.get("PELTON_FULL") != "1":
        print("chart: only in ./test --full", file=sys.stderr)
        sys.exit(77)
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    WORK = pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

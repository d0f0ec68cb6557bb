#!/usr/bin/env python3
"""What is shipped for Kubernetes (deploy/kubernetes, written from deploy/helm by tools/manifests) fits the binary: its flags are there, its
files are sound, and its pod templates, run as processes, pass their own probes, serve, and are replaced without a lost request.
tests/chart_test.py renders the chart itself, in ./test --full.

usage: kubernetes_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest

import yaml

import gateway_fixture
from gateway_discovery_test import ApiServer
from gateway_fixture import BOX, ask
from kubernetes_workload import WorkloadApi
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ROOT / "deploy" / "kubernetes"
PLAIN = ["laptop", "one-gpu", "fleet", "autoscaled", "multi-node", "prefill-decode", "inference-pool"]
MODEL_IN_IMAGE = "/usr/share/pelton/models/pelton-box"


def load(path):
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def installed(name):
    return load(FOLDERS / name / "manifests.yaml")


def named(objects, kind, name):
    return next(one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name)


def workloads(objects):
    """Deployments and StatefulSets; of a LeaderWorkerSet its two templates, each as if it were one."""
    found = [one for one in objects if one["kind"] in ("Deployment", "StatefulSet")]
    for one in objects:
        if one["kind"] == "LeaderWorkerSet":
            for rank in ("leader", "worker"):
                template = one["spec"]["leaderWorkerTemplate"][rank + "Template"]
                found.append({**one, "spec": {"template": template, "selector": {"matchLabels": template["metadata"]["labels"]}}})
    return found


def container_of(workload):
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return container


def is_selected(labels, selector):
    return all(labels.get(key) == value for key, value in selector.items())


def kind_of(template):
    return {key: value for key, value in template["metadata"]["labels"].items() if key not in ("pelton/rank", "pelton/role")}


class Files(unittest.TestCase):
    def test_they_are_as_the_chart_would_have_them(self):
        done = subprocess.run([sys.executable, ROOT / "tools" / "manifests", "--sums"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_image_has_the_version_of_the_source(self):
        version = re.search(r"project\(pelton VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        chart = yaml.safe_load((ROOT / "deploy/helm/pelton/Chart.yaml").read_text())
        self.assertEqual(chart["appVersion"], version)
        for name in PLAIN:
            for workload in workloads(installed(name)):
                self.assertRegex(container_of(workload)["image"], rf"^pelton:{re.escape(version)}(-cuda)?$")

    def test_values_and_schema_name_the_same(self):
        schema = json.loads((ROOT / "deploy/helm/pelton/values.schema.json").read_text())
        values = yaml.safe_load((ROOT / "deploy/helm/pelton/values.yaml").read_text())

        def resolved(node):
            while "$ref" in node:
                found = schema
                for part in node["$ref"].removeprefix("#/").split("/"):
                    found = found[part]
                node = found
            return node

        def compare(node, value, where):
            node = resolved(node)
            if node.get("additionalProperties") is not False or not isinstance(value, dict):
                return
            optional = {"global", "limits", "requests"} | set(schema["definitions"]["affinity"]["properties"]) | set(resolved(schema["definitions"]["scale"])["properties"]["settings"]["properties"])
            self.assertEqual(set(node["properties"]) - optional, set(value) - {"limits", "requests"}, where)
            for key, one in value.items():
                described = resolved(node["properties"][key])
                self.assertTrue(described.get("description") or "properties" in described or key in optional, f"{where}.{key} is not described")
                compare(node["properties"][key], one, f"{where}.{key}")
        compare(schema, values, "values")

    def test_objects_fit_each_other(self):
        for name in PLAIN:
            self.expect_objects_fit(name, installed(name))

    def expect_objects_fit(self, name, objects):
        pods = [(one["spec"]["template"], one) for one in workloads(objects)]
        names = [(one["kind"], one["metadata"]["name"]) for one in objects]
        self.assertEqual(len(names), len(set(names)), name)
        for template, workload in pods:
            self.assertTrue(is_selected(template["metadata"]["labels"], workload["spec"]["selector"]["matchLabels"]), workload["metadata"]["name"])
        for one in objects:
            selector = {"Service": ("selector",), "PodDisruptionBudget": ("selector", "matchLabels"),
                        "NetworkPolicy": ("podSelector", "matchLabels"), "PodMonitor": ("selector", "matchLabels"),
                        "InferencePool": ("selector", "matchLabels")}.get(one["kind"])
            if selector is None:
                continue
            with self.subTest(f"{name} {one['kind']} {one['metadata']['name']}"):
                labels = one["spec"]
                for key in selector:
                    labels = labels[key]
                meant = [template for template, _ in pods if is_selected(template["metadata"]["labels"], labels)]
                self.assertTrue(meant, "it selects no pod")
                if one["kind"] != "PodMonitor":
                    self.assertEqual(len({json.dumps(kind_of(template)) for template in meant}), 1, "it selects pods of several kinds")
                if one["kind"] == "Service":
                    self.assertNotIn("follower", [template["metadata"]["labels"].get("pelton/rank") for template in meant], "it does not listen")
                for template in meant:
                    if template["metadata"]["labels"].get("pelton/rank") != "follower":
                        self.expect_ports(one, template)

    def expect_ports(self, one, template):
        ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        asked = {"Service": lambda spec: {port["targetPort"] for port in spec["ports"]},
                 "NetworkPolicy": lambda spec: {port["port"] for rule in spec["ingress"] for port in rule.get("ports", [])},
                 "PodMonitor": lambda spec: {end["port"] for end in spec["podMetricsEndpoints"]}}.get(one["kind"], lambda spec: set())
        self.assertLessEqual(asked(one["spec"]), ports)

    def test_pods_are_confined_and_end_in_time(self):
        for name in PLAIN:
            self.expect_pods_are_confined_and_end_in_time(name, installed(name), with_limits=True)

    def expect_pods_are_confined_and_end_in_time(self, name, objects, with_limits):
        files = [one["data"]["gateway.toml"] for one in objects if one["kind"] == "ConfigMap" and "gateway.toml" in one.get("data", {})]
        for workload in workloads(objects):
            pod, container = workload["spec"]["template"]["spec"], container_of(workload)
            with self.subTest(f"{name} {workload['metadata']['name']}"):
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertEqual(pod["securityContext"]["runAsUser"], 65532)
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertEqual(container["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                                "capabilities": {"drop": ["ALL"]}})
                if with_limits:
                    self.assertIn("memory", container["resources"]["limits"])
                args = container["args"]
                takes = 0
                if args[0] == "serve":
                    takes = sum(int(args[args.index(flag) + 1]) for flag in ("--drain-seconds", "--drain-delay-seconds")) + 5
                    self.assertIn("/dev/shm", {mount["mountPath"] for mount in container["volumeMounts"]})
                    self.assertFalse(pod["automountServiceAccountToken"])
                elif args[0] == "gateway":
                    drain = max(int(seconds) for file in files for seconds in re.findall(r"(?m)^drain_seconds = (\d+)$", file))
                    takes = container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain + 2
                self.assertGreater(pod["terminationGracePeriodSeconds"], takes)
                self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {volume["name"] for volume in pod["volumes"]})

    def test_roles_are_the_least(self):
        roles = [one for name in PLAIN for one in installed(name) if one["kind"] in ("Role", "ClusterRole")]
        pools = ["pelton-main", "pelton-long"]
        slices = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
        self.assertEqual([one["rules"] for one in roles], [
            slices,
            [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": pools, "verbs": ["get", "patch"]},
             {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
             {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["pelton-" + one for one in pools], "verbs": ["get", "patch"]},
             {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]}], slices, slices])

    def test_who_has_a_token_has_a_role(self):
        for name in PLAIN:
            objects = installed(name)
            with_role = {subject["name"] for one in objects if one["kind"] == "RoleBinding" for subject in one["subjects"]}
            pods = [one["spec"]["template"]["spec"] for one in workloads(objects)]
            self.assertEqual({pod["serviceAccountName"] for pod in pods if pod["automountServiceAccountToken"]}, with_role, name)

    def test_an_autoscaler_that_acts_writes_what_is_there_and_is_alone(self):
        objects = installed("autoscaled")
        self.assertNotIn("--advise", container_of(named(objects, "Deployment", "pelton-autoscaler"))["args"])
        self.assertIn("--advise", container_of(named(installed("fleet"), "Deployment", "pelton-autoscaler"))["args"])
        config = tomllib.loads(named(objects, "ConfigMap", "pelton-gateway")["data"]["gateway.toml"])
        for pool in config["pool"]:
            launch = pool["launch"]
            self.assertEqual(launch["workload"], f"pelton/deployment/pelton-{pool['name']}")
            spec = named(objects, "Deployment", f"pelton-{pool['name']}")["spec"]
            self.assertNotIn("replicas", spec, "an apply would write them back")
            args = container_of({"spec": spec})["args"]
            self.assertEqual(args[args.index("--fleet-port") + 1], str(launch["port"]))
            self.assertFalse({"kubernetes", "dns"} & set(pool), "the autoscaler says where its workers are")

    def test_nodes_of_a_group_reach_each_other_and_only_the_leader_is_asked(self):
        objects = installed("multi-node")
        (group,) = [one["spec"] for one in objects if one["kind"] == "LeaderWorkerSet"]
        leader, follower = (group["leaderWorkerTemplate"][rank + "Template"] for rank in ("leader", "worker"))
        self.assertEqual((group["leaderWorkerTemplate"]["size"], group["leaderWorkerTemplate"]["restartPolicy"]), (2, "RecreateGroupOnPodRestart"))
        args = [one["spec"]["containers"][0]["args"] for one in (leader, follower)]
        differ = [(a, b) for a, b in zip(*args) if a != b]
        self.assertEqual(differ, [("0", "$(LWS_WORKER_INDEX)"), ("$(POD_IP)", "$(LWS_LEADER_ADDRESS)")])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe", "ports"):
            self.assertNotIn(probe, follower["spec"]["containers"][0], "it listens nowhere")
        self.assertTrue(is_selected(leader["metadata"]["labels"], named(objects, "Service", "pelton-main")["spec"]["selector"]))
        (anything,) = [rule for rule in named(objects, "NetworkPolicy", "pelton-main")["spec"]["ingress"] if "ports" not in rule]
        (peer,) = anything["from"]
        for template in (leader, follower):
            self.assertTrue(is_selected(template["metadata"]["labels"], peer["podSelector"]["matchLabels"]))

    def test_workers_of_a_split_pool_say_their_role_and_reach_each_other(self):
        objects = installed("prefill-decode")
        kinds = {role: named(objects, "Deployment", f"pelton-main-{role}")["spec"] for role in ("prefill", "decode")}
        for role, spec in kinds.items():
            args = container_of({"spec": spec})["args"]
            self.assertEqual((args[args.index("--fleet-role") + 1], args[args.index("--kv-port") + 1]), (role, "9201"))
            others = kinds["decode" if role == "prefill" else "prefill"]["template"]["metadata"]["labels"]
            self.assertFalse(is_selected(others, spec["selector"]["matchLabels"]), "one Deployment would have the other's pods")
            for kind, selector in (("Service", lambda one: one["selector"]), ("NetworkPolicy", lambda one: one["podSelector"]["matchLabels"])):
                self.assertTrue(is_selected(spec["template"]["metadata"]["labels"], selector(named(objects, kind, "pelton-main")["spec"])))
        (rule,) = [rule for rule in named(objects, "NetworkPolicy", "pelton-main")["spec"]["ingress"] if rule["ports"] == [{"port": "kv"}]]
        (peer,) = rule["from"]
        for spec in kinds.values():
            self.assertTrue(is_selected(spec["template"]["metadata"]["labels"], peer["podSelector"]["matchLabels"]))
        self.assertEqual([spec["replicas"] for spec in kinds.values()], [1, 2])
        (pool,) = tomllib.loads(named(objects, "ConfigMap", "pelton-gateway")["data"]["gateway.toml"])["pool"]
        self.assertEqual((pool["split"], pool["kubernetes"]), ("auto", "pelton/pelton-main:fleet"))

    def test_an_inference_pool_is_the_servers_pods(self):
        objects = installed("inference-pool")
        (pool,) = [one["spec"] for one in objects if one["kind"] == "InferencePool"]
        self.assertEqual(set(pool), {"selector", "targetPorts", "endpointPickerRef"})
        self.assertEqual(pool["endpointPickerRef"], {"group": "", "kind": "Service", "name": "pelton-epp", "port": {"number": 9002}, "failureMode": "FailOpen"})
        ports = {port["containerPort"] for port in container_of(named(objects, "Deployment", "pelton"))["ports"]}
        self.assertEqual([port["number"] for port in pool["targetPorts"]], [8000])
        self.assertIn(8000, ports)

    def test_workers_are_reached_by_gateways_and_those_who_watch_only(self):
        objects = installed("fleet")
        for one in objects:
            if one["kind"] != "NetworkPolicy" or not one["metadata"]["name"].endswith(("-main", "-long")):
                continue
            rules = {rule["ports"][0]["port"]: rule["from"] for rule in one["spec"]["ingress"]}
            self.assertEqual(rules["fleet"], [{"podSelector": {"matchLabels": named(objects, "StatefulSet", "pelton-gateway")["spec"]["selector"]["matchLabels"]}}])
            self.assertEqual(rules["http"], [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}])

    def test_one_writes_replicas(self):
        for name, kind in (("keda", "ScaledObject"), ("hpa", "HorizontalPodAutoscaler")):
            (kustomization,) = load(FOLDERS / name / "kustomization.yaml")
            targets = {one["spec"]["scaleTargetRef"]["name"] for one in load(FOLDERS / name / "more.yaml") if one["kind"] == kind}
            freed = {patch["target"]["name"] for patch in kustomization["patches"] if {"op": "remove", "path": "/spec/replicas"} in yaml.safe_load(patch["patch"])}
            self.assertEqual(targets, {"pelton-main", "pelton-long"})
            self.assertEqual(freed, targets)


class Flags(unittest.TestCase):
    """Every container's command is one that the binary takes."""

    @classmethod
    def setUpClass(cls):
        cls.known = {}
        for verb in ("serve", "gateway", "autoscale"):
            text = subprocess.run([gateway_fixture.BINARY, verb, "--help"], capture_output=True, text=True, check=True).stdout
            cls.known[verb] = set(re.findall(r"--[a-z][a-z0-9-]*", text))

    def test_flags_are_the_binarys(self):
        seen = set()
        for name in PLAIN:
            for workload in workloads(installed(name)):
                container = container_of(workload)
                self.assertEqual(container["command"], ["pelton"])
                verb, flags = container["args"][0], {word for word in container["args"] if word.startswith("--")}
                seen.add(verb)
                self.assertEqual(flags - self.known[verb], set(), f"{name} {workload['metadata']['name']}")
                if verb == "serve":
                    self.expect_sound(container["args"])
        self.assertEqual(seen, {"serve", "gateway", "autoscale"})

    def expect_sound(self, args):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "file"
            file.write_text("a secret of thirty-two bytes or more\n")
            args = [str(file) if word.startswith("/etc/pelton/") else in_pod(word) for word in args]
            done = subprocess.run([gateway_fixture.BINARY, *args, "--print-config"], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            done = subprocess.run([gateway_fixture.BINARY, *args, "--no-such-flag"], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, "a wrong flag would not be seen")


def in_pod(word):
    for name, value in (("POD_NAME", "pod"), ("POD_IP", "127.0.0.1"), ("LWS_LEADER_ADDRESS", "127.0.0.1"), ("LWS_WORKER_INDEX", "1")):
        word = word.replace(f"$({name})", value)
    return word


class Pod:
    """A pod template as a process: its arguments, environment and volumes, with free ports for its own and folders for its mounts."""

    def __init__(self, objects, workload, folder, secrets, name, edit=lambda text: text, ports=None, environment=None):
        self.spec = workload["spec"]["template"]["spec"]
        self.container = container_of(workload)
        self.folder = pathlib.Path(folder) / name
        listens = self.container.get("ports", [])
        self.ports = {**{port["containerPort"]: free_port() for port in listens}, **(ports or {})}
        self.by_name = {port["name"]: self.ports[port["containerPort"]] for port in listens}
        self.edit = edit
        self.mounts = {}
        for mount in self.container["volumeMounts"]:
            self.mount(objects, mount, secrets)
        environment = {"PATH": os.environ["PATH"], **(environment or {})}
        fields = {"metadata.name": name, "status.podIP": "127.0.0.1"}
        for one in self.container["env"]:
            field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[one["name"]] = fields[field] if field else self.inside(one["value"])
        args = [re.sub(r"\$\((\w+)\)", lambda match: environment[match.group(1)], word) for word in self.container["args"]]
        self.log = open(self.folder / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen([gateway_fixture.BINARY, *map(self.inside, args)], env=environment, cwd="/",
                                        stdout=self.log, stderr=self.log)

    def inside(self, text):
        """A path in the pod as the folder that stands for it, a port as the free one."""
        if text.isdigit() and int(text) in self.ports:
            return str(self.ports[int(text)])
        for path, folder in self.mounts.items():
            text = text.replace(path, str(folder))
        return text.replace(MODEL_IN_IMAGE, str(BOX))

    def mount(self, objects, mount, secrets):
        volume = next(one for one in self.spec["volumes"] if one["name"] == mount["name"])
        folder = self.mounts[mount["mountPath"]] = self.folder / mount["name"]
        if "emptyDir" in volume:
            folder.mkdir(parents=True)
        elif "configMap" in volume:
            texts = named(objects, "ConfigMap", volume["configMap"]["name"])["data"]
            self.put(folder, {file: self.own(text) for file, text in texts.items()}, "1")
        else:
            self.put(folder, secrets[volume["secret"]["secretName"]], "1")

    def own(self, text):
        for port, free in self.ports.items():
            text = text.replace(f'"0.0.0.0:{port}"', f'"0.0.0.0:{free}"')
        return self.edit(text)

    @staticmethod
    def put(folder, texts, version):
        """Files as the kubelet has them: links by way of a folder that is replaced in one step."""
        (folder / version).mkdir(parents=True)
        for file, text in texts.items():
            (folder / version / file).write_text(text)
            if not (folder / file).is_symlink():
                (folder / file).symlink_to(pathlib.Path("..data") / file)
        (folder / "..new").symlink_to(version)
        (folder / "..new").rename(folder / "..data")

    def probe(self, which):
        """The probe's status; 0: nobody answers."""
        asked = self.container[which]["httpGet"]
        assert asked.get("scheme", "HTTP") == "HTTP"
        connection = http.client.HTTPConnection("127.0.0.1", self.by_name[asked["port"]], timeout=self.container[which]["timeoutSeconds"])
        try:
            connection.request("GET", asked["path"])
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def wait_for(self, which, status=200):
        """Within what the probe itself allows; the machine may be busy, so at least a minute."""
        probe = self.container[which]
        end = time.monotonic() + max(60, probe.get("failureThreshold", 3) * probe["periodSeconds"])
        while self.probe(which) != status:
            assert time.monotonic() < end, (which, self.text())
            assert status != 200 or self.process.poll() is None, self.text()
            time.sleep(0.05)

    def start(self):
        if "startupProbe" in self.container:
            self.wait_for("startupProbe")
        self.wait_for("livenessProbe")
        self.wait_for("readinessProbe")

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def ask_to_end(self):
        self.process.send_signal(signal.SIGTERM)

    def expect_end(self):
        """As its grace period allows."""
        assert self.process.wait(self.spec["terminationGracePeriodSeconds"]) == 0, self.text()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


def question(words):
    return json.dumps({"model": "pelton-box", "messages": [{"role": "user", "content": words}], "max_tokens": 8})


class Processes(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def pod(self, objects, kind, name, pod_name, secrets=None, edit=lambda text: text):
        pod = Pod(objects, named(objects, kind, name), self.folder, secrets or {}, pod_name, edit)
        self.addCleanup(pod.close)
        return pod

    def test_a_laptops_pod(self):
        pod = self.pod(installed("laptop"), "Deployment", "pelton", "pelton-a")
        pod.start()
        status, text = ask(pod.by_name["http"], "POST", "/v1/chat/completions", json.loads(question("Hello")))
        self.assertEqual(status, 200, text)
        pod.ask_to_end()
        # First it is not ready, and still lives: that is how Services learn of it.
        pod.wait_for("readinessProbe", 503)
        self.assertEqual(pod.probe("livenessProbe"), 200)
        pod.expect_end()

    def test_a_groups_pods_compute_together(self):
        """Leader and follower of a LeaderWorkerSet, with the environment that its controller gives the follower."""
        objects = installed("multi-node")
        key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        secrets = {"pelton-fleet": {"fleet.key": key.read_text()}, "pelton-ranks": {"ranks.secret": "0123456789abcdef" * 4 + "\n"}}
        leads, follows = [one for one in workloads(objects) if one["kind"] == "LeaderWorkerSet"]
        leader = Pod(objects, leads, self.folder, secrets, "pelton-main-0")
        self.addCleanup(leader.close)
        follower = Pod(objects, follows, self.folder, secrets, "pelton-main-0-1", ports={29501: leader.by_name["ranks"]},
                       environment={"LWS_LEADER_ADDRESS": "localhost", "LWS_WORKER_INDEX": "1"})
        self.addCleanup(follower.close)
        leader.start()
        status, text = ask(leader.by_name["http"], "POST", "/v1/chat/completions", json.loads(question("Hello")))
        self.assertEqual(status, 200, text)
        exchanges = [line for line in str(ask(leader.by_name["http"], "GET", "/metrics")[1]).replace("\\n", "\n").splitlines() if line.startswith("pelton_rank_exchanges_total")]
        self.assertEqual(len(exchanges), 2, exchanges)
        leader.ask_to_end()
        leader.expect_end()
        follower.expect_end()

    def test_a_fleets_pods(self):
        objects = installed("fleet")
        key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        secrets = {"pelton-fleet": {"fleet.key": key.read_text()}, "pelton-keys": {"keys": "sesame\n"}}
        api = ApiServer("token", {("pelton", "pelton-main"), ("pelton", "pelton-long")})
        self.addCleanup(api.close)
        (self.folder / "token").write_text("token")
        found = f'[kubernetes]\napi = "http://127.0.0.1:{api.server_address[1]}"\ntoken_file = "{self.folder / "token"}"\nca_file = ""\n'
        gateways = []

        def edit(text):
            for path, secret in (("/etc/pelton/fleet", "fleet"), ("/etc/pelton/keys", "keys")):
                text = text.replace(path, str(self.folder / "pelton-gateway-0" / secret))
            for i, one in enumerate(gateways):
                text = text.replace(f"http://pelton-gateway-{i}.pelton-gateway-pods:8091", f"http://127.0.0.1:{one.by_name['metrics']}")
            return text.replace(MODEL_IN_IMAGE, str(BOX)) + found

        for i in range(named(objects, "StatefulSet", "pelton-gateway")["spec"]["replicas"]):
            gateways.append(self.pod(objects, "StatefulSet", "pelton-gateway", f"pelton-gateway-{i}", secrets, edit))
        scaler = self.pod(objects, "Deployment", "pelton-autoscaler", "pelton-autoscaler-a", secrets, edit)
        workers = [self.pod(objects, "Deployment", "pelton-main", f"pelton-main-{i}", secrets) for i in range(2)]
        workers.append(self.pod(objects, "Deployment", "pelton-long", "pelton-long-0", secrets))
        for pod in [*workers, *gateways, scaler]:
            pod.start()

        def endpoints(pods, ending=()):
            # The double has one port for a slice: a slice for each pod.
            for pod in pods:
                service = pod.folder.name.rsplit("-", 1)[0]
                api.put(pod.folder.name, [{"addresses": ["127.0.0.1"], "conditions": {
                    "ready": pod not in ending, "serving": True, "terminating": pod in ending}}], pod.by_name["fleet"], service=service)
        endpoints(workers)
        self.wait_for_workers(gateways, 3)
        self.expect_keys_are_asked_for(gateways[0])
        self.expect_keda_finds_its_figure(scaler)
        self.expect_a_rollout_without_gap(api, gateways, workers, endpoints)
        for pod in [*gateways, scaler]:
            pod.ask_to_end()
            pod.expect_end()

    def test_a_split_pools_pods_hand_an_answer_over(self):
        """A gateway, a pod that computes prompts and one at which answers go on, as their templates have them."""
        objects = installed("prefill-decode")
        key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        secrets = {"pelton-fleet": {"fleet.key": key.read_text()}, "pelton-keys": {"keys": "sesame\n"}}
        api = ApiServer("token", {("pelton", "pelton-main")})
        self.addCleanup(api.close)
        (self.folder / "token").write_text("token")

        def edit(text):
            for path, secret in (("/etc/pelton/fleet", "fleet"), ("/etc/pelton/keys", "keys")):
                text = text.replace(path, str(self.folder / "pelton-gateway-0" / secret))
            return (text.replace(MODEL_IN_IMAGE, str(BOX)).replace('split = "auto"', 'split = "always"') +
                    f'\n[kubernetes]\napi = "http://127.0.0.1:{api.server_address[1]}"\ntoken_file = "{self.folder / "token"}"\nca_file = ""\n')
        gateway = self.pod(objects, "StatefulSet", "pelton-gateway", "pelton-gateway-0", secrets, edit)
        workers = [self.pod(objects, "Deployment", f"pelton-main-{role}", f"pelton-main-{role}-0", secrets) for role in ("prefill", "decode")]
        for pod in workers:
            pod.start()
            api.put(pod.folder.name, [{"addresses": ["127.0.0.1"], "conditions": {"ready": True, "serving": True, "terminating": False}}],
                    pod.by_name["fleet"], service="pelton-main")
        gateway.start()  # ready once there is one of each
        self.wait_for_workers([gateway], 2)
        connection = http.client.HTTPConnection("127.0.0.1", gateway.by_name["http"], timeout=60)
        self.addCleanup(connection.close)
        body = {"model": "pelton-box", "max_tokens": 40, "ignore_eos": True, "messages": [{"role": "user", "content": "Count: " + " ".join(map(str, range(200)))}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json", "Authorization": "Bearer sesame"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200, answer.read())
        metrics = ask(gateway.by_name["metrics"], "GET", "/metrics")[1]
        self.assertRegex(metrics if isinstance(metrics, str) else metrics.decode(), r'pelton_gateway_splits_total\{outcome="handed_over"\} 1')

    def test_an_autoscaler_that_acts_starts_a_pod_for_a_request_within_its_role(self):
        """The gateway, the autoscaler and the pool's own pod template, over a double of the API server that has the one Deployment."""
        objects = installed("autoscaled")
        key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        secrets = {"pelton-fleet": {"fleet.key": key.read_text()}, "pelton-keys": {"keys": "sesame\n"}}
        (self.folder / "token").write_text("token")
        port = free_port()

        def start(address):
            # Pods have addresses of their own, and the same port.
            container = container_of(named(objects, "Deployment", "pelton-long"))
            words = [word.replace(MODEL_IN_IMAGE, str(BOX)).replace("$(POD_NAME)", address) for word in container["args"]]
            for flag, value in (("--fleet-host", address), ("--fleet-port", port), ("--port", 0), ("--host", "127.0.0.1"), ("--fleet-key-file", key)):
                words[words.index(flag) + 1] = str(value)
            return subprocess.Popen([gateway_fixture.BINARY, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={
                **os.environ, "HOME": str(self.folder), "PELTON_CACHE": str(self.folder / "cache")})
        api = WorkloadApi("token", start)
        self.addCleanup(api.close)
        gateways = []

        def edit(text):
            for path, secret in (("/etc/pelton/fleet", "fleet"), ("/etc/pelton/keys", "keys")):
                text = text.replace(path, str(self.folder / "pelton-gateway-0" / secret))
            for i, one in enumerate(gateways):
                text = text.replace(f"http://pelton-gateway-{i}.pelton-gateway-pods:8091", f"http://127.0.0.1:{one.by_name['metrics']}")
            text = re.sub(r'    "http://pelton-gateway-.*\n', "", text)  # those that do not run here
            # The double has one workload: the other pool goes.
            before, first, second = text.split("[[pool]]")
            text = before + "[[pool]]" + second.replace("pelton/deployment/pelton-long", "ml/deployment/box").replace("port = 9101", f"port = {port}")
            assert 'name = "main"' in first
            return text + f'\n[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = "{self.folder / "token"}"\nca_file = ""\n'

        gateways.append(self.pod(objects, "StatefulSet", "pelton-gateway", "pelton-gateway-0", secrets, edit))
        scaler = self.pod(objects, "Deployment", "pelton-autoscaler", "pelton-autoscaler-a", secrets, edit)
        for which in ("livenessProbe",):
            gateways[0].wait_for(which)
        scaler.start()
        self.assertEqual(api.pods, {}, "nobody has asked")
        status, text = self.chat(gateways[0], model="pelton-box-long")
        self.assertEqual(status, 200, f"{text}\n{gateways[0].text()}\n{scaler.text()}")
        self.assertEqual(len(api.pods), 1)
        self.expect_within_its_role(objects, api.writes)
        scaler.ask_to_end()
        scaler.expect_end()
        self.assertEqual(len(api.pods), 1, "pods outlive whoever decides")

    def expect_within_its_role(self, objects, writes):
        rules = {}
        for rule in named(objects, "Role", "pelton-autoscaler")["rules"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    rules.setdefault((verb, resource), set()).update(rule.get("resourceNames", ["*"]))
        self.assertTrue(writes)
        for method, path, _ in writes:
            resource, *rest = path.split("/namespaces/ml/")[1].split("/")
            # As the double calls what is pelton-long there.
            name = {"box": "pelton-long", "pelton-box": "pelton-pelton-long"}.get(rest[0], rest[0]) if rest else "*"
            resource = "/".join([resource, *rest[1:]])
            allowed = rules.get(({"POST": "create", "PATCH": "patch"}[method], resource), set())
            self.assertTrue({name, "*"} & allowed, f"{method} {path} is not allowed by {rules}")

    def wait_for_workers(self, gateways, count):
        end = time.monotonic() + 60
        for gateway in gateways:
            while True:
                rows = json.loads(ask(gateway.by_name["metrics"], "GET", "/v1/workers")[1])["workers"]
                if sum(row["state"] == "ready" for row in rows) == count:
                    break
                self.assertLess(time.monotonic(), end, f"{rows}\n{gateway.text()}")
                time.sleep(0.05)

    @staticmethod
    def chat(gateway, key="sesame", model="pelton-box"):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.by_name["http"], timeout=60)
        try:
            body = json.dumps({**json.loads(question("Hello")), "model": model})
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def expect_keys_are_asked_for(self, gateway):
        self.assertEqual(self.chat(gateway, key="")[0], 401)
        for model in ("pelton-box", "pelton-box-long"):
            status, text = self.chat(gateway, model=model)
            self.assertEqual(status, 200, text)

    def expect_keda_finds_its_figure(self, scaler):
        """Its trigger's address and path lead to a number."""
        for one in load(FOLDERS / "keda" / "more.yaml"):
            if one["kind"] != "ScaledObject":
                continue
            (trigger,) = one["spec"]["triggers"]
            asked = trigger["metadata"]
            self.assertEqual(asked["url"].split("/", 3)[2], "pelton-autoscaler.pelton.svc:8092")
            pool = re.fullmatch(r'pools\.#\(pool=="([a-z]+)"\)\.desired', asked["valueLocation"]).group(1)
            self.assertEqual(one["spec"]["scaleTargetRef"]["name"], f"pelton-{pool}")
            status, text = ask(scaler.by_name["metrics"], "GET", "/" + asked["url"].split("/", 3)[3])
            self.assertEqual(status, 200)
            (row,) = [row for row in json.loads(text)["pools"] if row["pool"] == pool]
            self.assertGreaterEqual(row["desired"], one["spec"]["minReplicaCount"])
        status, text = ask(scaler.by_name["metrics"], "GET", "/metrics")
        for one in load(FOLDERS / "hpa" / "more.yaml"):
            metric = one["spec"]["metrics"][0]["external"]["metric"]
            self.assertRegex(text, rf'{metric["name"]}{{pool="{metric["selector"]["matchLabels"]["pool"]}"}} \d')

    def expect_a_rollout_without_gap(self, api, gateways, workers, endpoints):
        """A worker goes as a pod does: its endpoint is terminating, it is asked to end. Nobody who asks notices."""
        going = workers[0]
        bad, stop = [], threading.Event()

        def load_it():
            while not stop.is_set():
                status, text = self.chat(gateways[0])
                if status != 200:
                    bad.append((status, text))
        clients = [threading.Thread(target=load_it) for _ in range(4)]
        for one in clients:
            one.start()
        endpoints(workers[:1], ending=[going])
        going.ask_to_end()
        going.expect_end()
        api.delete(going.folder.name)
        self.wait_for_workers(gateways, 2)
        self.expect_changes_are_read(gateways[0])
        stop.set()
        for one in clients:
            one.join()
        self.assertEqual(bad, [])

    def expect_changes_are_read(self, gateway):
        """A ConfigMap that changes, as the kubelet puts it there: no new start is needed."""
        folder = gateway.mounts["/etc/pelton/gateway"]
        text = (folder / "gateway.toml").read_text()
        gateway.put(folder, {"gateway.toml": text.replace('"pelton-box-long"', '"another-name"')}, "2")
        end = time.monotonic() + 60
        while "the configuration is read anew" not in gateway.text():
            self.assertLess(time.monotonic(), end, gateway.text())
            time.sleep(0.1)
        config = ask(gateway.by_name["metrics"], "GET", "/v1/config")[1]
        self.assertEqual(tomllib.loads(config)["pool"][1]["model"], ["another-name"])


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])

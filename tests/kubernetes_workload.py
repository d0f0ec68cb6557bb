"""A double of Kubernetes' API server with one workload whose pods are processes of this machine: its scale, leases, pods (listed, watched),
with optimistic locking, and a controller that takes the pods a real one would."""
import http.server
import json
import re
import signal
import subprocess
import threading
import urllib.parse

from json_handler import JsonHandler


# What kubectl asks before it does anything.
DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]}]},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
    "/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [
        {"name": "deployments", "singularName": "deployment", "namespaced": True, "kind": "Deployment", "verbs": ["get", "patch"]},
        {"name": "deployments/scale", "singularName": "", "namespaced": True, "group": "autoscaling", "version": "v1", "kind": "Scale",
         "verbs": ["get", "patch", "update"]}]},
    "/apis/apps/v1/namespaces/ml/deployments/box": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
        "name": "box", "namespace": "ml", "resourceVersion": "1"}, "spec": {"replicas": 0}},
}


def merged(into, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    into = dict(into) if isinstance(into, dict) else {}
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = merged(into.get(key), value)
    return into


class WorkloadApi(http.server.ThreadingHTTPServer):
    """Deployment ml/box. `token`: None: nobody is asked for one. `start(address)` starts a pod's process; pods have addresses 127.0.0.2, 127.0.0.3, ..."""
    daemon_threads = True

    def __init__(self, token, start):
        self.token, self.start, self.version = token, start, 10
        self.changed, self.events = threading.Condition(), []
        self.replicas, self.scale_version, self.leases, self.maps, self.pods, self.created = 0, 1, {}, {}, {}, 0
        self.writes, self.types, self.refused = [], [], 0

        class Handler(JsonHandler):
            def run(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
                    self.server.refused += 1
                    return self.whole(401, {"kind": "Status", "code": 401})
                return self.server.answer(self, self.command, urllib.parse.urlsplit(self.path), json.loads(body or b"{}"))
            do_GET = do_POST = do_PATCH = run
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Who asked was killed."""

    def answer(self, handler, method, url, body):
        query = dict(urllib.parse.parse_qsl(url.query))
        with self.changed:
            if method != "GET":
                self.writes.append((method, url.path, body))
                self.types.append(handler.headers.get("Content-Type"))
            if url.path in DISCOVERY:
                return handler.whole(200, DISCOVERY[url.path])
            if url.path == "/apis/apps/v1/namespaces/ml/deployments/box/scale":
                return handler.whole(*self.scale(method, body))
            if place := re.fullmatch(r"/apis/coordination\.k8s\.io/v1/namespaces/ml/leases(?:/(.+))?", url.path):
                return handler.whole(*self.keep(self.leases, method, place.group(1), body))
            if place := re.fullmatch(r"/api/v1/namespaces/ml/configmaps(?:/(.+))?", url.path):
                if method == "GET" and not place.group(1):
                    key, value = query["labelSelector"].split("=")
                    found = [one for one in self.maps.values() if one["metadata"].get("labels", {}).get(key) == value]
                    return handler.whole(200, {"metadata": {"resourceVersion": str(self.version)}, "items": found})
                return handler.whole(*self.keep(self.maps, method, place.group(1), body))
            if place := re.fullmatch(r"/api/v1/namespaces/ml/pods/(.+)", url.path):
                return handler.whole(*self.mark(place.group(1), body))
            if url.path != "/api/v1/namespaces/ml/pods" or query.get("labelSelector") != "app=box":
                return handler.whole(404, {"kind": "Status", "code": 404, "message": f"nothing at {url.path}"})
            if "watch" not in query:
                return handler.whole(200, {"metadata": {"resourceVersion": str(self.version)}, "items": [one["object"] for one in self.pods.values()]})
        return self.watch(handler, int(query["resourceVersion"]))

    def scale(self, method, body):
        if method == "PATCH":
            if body.get("metadata", {}).get("resourceVersion", str(self.scale_version)) != str(self.scale_version):
                return 409, {"kind": "Status", "code": 409, "message": "the object has been modified"}
            self.replicas, self.scale_version = body["spec"]["replicas"], self.scale_version + 1
            self.control()
        return 200, {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "box", "resourceVersion": str(self.scale_version)},
                     "spec": {"replicas": self.replicas}, "status": {"replicas": len(self.pods), "selector": "app=box"}}

    def keep(self, objects, method, name, body):
        """Objects that nobody but their writers understands: created once, patched over the version that was read."""
        name = name or body["metadata"]["name"]
        known = objects.get(name)
        if method == "GET" or (method == "PATCH" and not known):
            return (200, known) if known else (404, {"kind": "Status", "code": 404})
        if known and (method == "POST" or body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]):
            return 409, {"kind": "Status", "code": 409, "message": "the object has been modified"}
        self.version += 1
        objects[name] = merged(known or {}, body)
        objects[name]["metadata"] |= {"name": name, "resourceVersion": str(self.version)}
        return 201 if method == "POST" else 200, objects[name]

    def mark(self, name, body):
        if name not in self.pods:
            return 404, {"kind": "Status", "code": 404}
        metadata = self.pods[name]["object"]["metadata"]
        if body["metadata"].get("resourceVersion") != metadata["resourceVersion"]:
            return 409, {"kind": "Status", "code": 409}
        annotations = metadata["annotations"]
        for key, value in body["metadata"]["annotations"].items():
            if value is None:
                annotations.pop(key, None)
            else:
                annotations[key] = value
        self.note("MODIFIED", name)
        return 200, self.pods[name]["object"]

    def note(self, kind, name):
        self.version += 1
        one = self.pods[name]["object"]
        one["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, json.loads(json.dumps(one))))
        self.changed.notify_all()

    def control(self):
        """As many pods as the scale says; those that go are asked to end, and are gone when they have."""
        def live():
            return [name for name, one in self.pods.items() if "deletionTimestamp" not in one["object"]["metadata"]]
        while len(live()) < self.replicas:
            self.created += 1
            name, address = f"box-{self.created}", f"127.0.0.{1 + self.created % 200}"
            self.pods[name] = {"process": self.start(address), "object": {
                "metadata": {"name": name, "annotations": {}, "creationTimestamp": f"2026-11-28T00:00:{self.created:02}Z"},
                "status": {"phase": "Running", "podIP": address, "containerStatuses": [{"restartCount": 0, "state": {"running": {}}}]}}}
            self.note("ADDED", name)
            threading.Thread(target=self.follow, args=(name, self.pods[name]["process"]), daemon=True).start()
        while len(live()) > self.replicas:
            def rank(name):
                cost = self.pods[name]["object"]["metadata"]["annotations"].get("controller.kubernetes.io/pod-deletion-cost", "0")
                return int(cost), -int(name.rsplit("-", 1)[1])
            name = min(live(), key=rank)
            self.pods[name]["object"]["metadata"]["deletionTimestamp"] = "2026-11-28T01:00:00Z"
            self.pods[name]["process"].send_signal(signal.SIGTERM)
            self.note("MODIFIED", name)

    def follow(self, name, process):
        process.wait()
        with self.changed:
            one = self.pods.get(name)
            if one:
                self.note("DELETED", name)
                del self.pods[name]
                self.control()

    def watch(self, handler, after):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        try:
            while True:
                with self.changed:
                    news = [one for one in self.events if one[0] > after]
                    if not news:
                        self.changed.wait(0.5)
                for version, kind, value in news:
                    handler.wfile.write(json.dumps({"type": kind, "object": value}).encode() + b"\n")
                    after = version
                handler.wfile.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(after)}}}).encode() + b"\n")
                handler.wfile.flush()
        except OSError:
            return None

    def close(self):
        with self.changed:
            self.replicas = 0
            processes = [one["process"] for one in self.pods.values()]
        for process in processes:
            process.kill()  # nobody, where it has gone by itself
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        self.shutdown()
        self.server_close()

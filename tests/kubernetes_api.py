"""A double of Kubernetes' API server, as much of it as a gateway asks."""
import http.server
import json
import re
import threading
import urllib.parse

from json_handler import JsonHandler


class ApiServer(http.server.ThreadingHTTPServer):
    """EndpointSlices of services (namespace, name): list, watch with bookmarks, 410, a token that rotates."""
    daemon_threads = True

    def __init__(self, token, services=(("ml", "pelton"),)):
        self.token, self.services, self.version, self.slices, self.oldest = token, set(services), 100, {}, 0
        self.changed, self.events, self.lists, self.watches, self.refused = threading.Condition(), [], 0, 0, 0

        class Handler(JsonHandler):
            def do_GET(self):
                server, url = self.server, urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query))
                if self.headers.get("Authorization") != f"Bearer {server.token}":
                    server.refused += 1
                    return self.whole(401, {"kind": "Status", "code": 401})
                place = re.fullmatch(r"/apis/discovery\.k8s\.io/v1/namespaces/([^/]+)/endpointslices", url.path)
                label, _, service = query.get("labelSelector", "").partition("=")
                if not place or label != "kubernetes.io/service-name" or (place.group(1), service) not in server.services:
                    return self.whole(404, {"kind": "Status", "code": 404})
                query["service"] = service
                return server.watch(self, query) if query.get("watch") else server.list(self, query)
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def list(self, handler, query):
        with self.changed:
            self.lists += 1
            names = sorted(name for name, one in self.slices.items() if self.service_of(one) == query["service"])
            first = int(query.get("continue", 0))  # pages of one slice
            more = {"continue": str(first + 1)} if first + 1 < len(names) else {}
            handler.whole(200, {"kind": "EndpointSliceList", "metadata": {"resourceVersion": str(self.version), **more},
                                "items": [self.slices[name] for name in names[first:first + 1]]})

    def watch(self, handler, query):
        after = int(query["resourceVersion"])
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True

        def say(kind, value):
            handler.wfile.write(json.dumps({"type": kind, "object": value}).encode() + b"\n")
            handler.wfile.flush()
        self.watches += 1
        mine = self.watches
        try:
            if after < self.oldest:
                return say("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
            while True:
                with self.changed:
                    news = [one for one in self.events if one[0] > after and self.service_of(one[2]) == query["service"]]
                    if not news:
                        self.changed.wait(0.2)
                        if self.watches == -mine:
                            return None
                for version, kind, value in news:
                    say(kind, value)
                    after = version
                if not news:
                    say("BOOKMARK", {"kind": "EndpointSlice", "metadata": {"resourceVersion": str(max(after, self.version))}})
        except OSError:
            return None

    @staticmethod
    def service_of(one):
        return one["metadata"]["labels"]["kubernetes.io/service-name"]

    def put(self, name, endpoints, port, service="pelton"):
        with self.changed:
            kind = "MODIFIED" if name in self.slices else "ADDED"
            self.version += 1
            self.slices[name] = {"metadata": {"name": name, "resourceVersion": str(self.version),
                                              "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
                                 "ports": [{"name": "http", "port": 1}, {"name": "fleet", "port": port}], "endpoints": endpoints}
            self.events.append((self.version, kind, self.slices[name]))
            self.changed.notify_all()

    def delete(self, name):
        with self.changed:
            self.version += 1
            value = self.slices.pop(name)
            self.events.append((self.version, "DELETED", {**value, "metadata": {**value["metadata"], "resourceVersion": str(self.version)}}))
            self.changed.notify_all()

    def close(self):
        self.shutdown()
        self.server_close()

#!/usr/bin/env python3
"""Whose requests go where: routes with weights, tenants that may not know of a model, and an operator who changes that while the
gateway runs.

usage: gateway_policy_test.py BINARY
"""
import collections
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Fleet, Replicas, ask, chat, check_stream
from tiers import FULL, full

CHAT = "/v1/chat/completions"


class Regions(Fleet):
    """Each worker says where it stands."""

    def start(self, i):
        self.flags = ("--executor", f"modelled:{self.script}", "--fleet-region", ("eu", "us")[i])
        super().start(i)


class Policy(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def fleet(self, *args, **more):
        fleet = Replicas(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def verb(self, fleet, *words):
        done = subprocess.run([gateway_fixture.BINARY, "fleet", *map(str, words), "--admin", f"http://127.0.0.1:{fleet.admin}"],
                              capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stdout, done.stderr

    def wait(self, what):
        end = time.monotonic() + 15
        while not what() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(what())

    def arms(self, fleet):
        """Requests by arm."""
        text = ask(fleet.admin, "GET", "/metrics")[1]
        lines = [line for line in text.splitlines()
                 if line.startswith("pelton_gateway_arm_requests_total{") and 'traffic="clients"' in line]
        return {line.split('arm="')[1].split('"')[0]: int(float(line.rsplit(" ", 1)[1])) for line in lines}

    def test_a_split_is_weighted_and_a_session_stays(self):
        fleet = self.fleet(3)

        def split(old, new):
            route = (f'[[route]]\nmodel = "pelton-box"\nsticky = "session"\n'
                     f'to = [{{pool = "box", weight = {old}}}, {{pool = "new", arm = "b", weight = {new}}}]\n')
            fleet.configure(fleet.ports[:2], '[[pool]]\nname = "new"\nmodel = "pelton-box"\n[[worker]]\npool = "new"\n'
                            f'url = "http://127.0.0.1:{fleet.ports[2]}"\n' + route)
            reloads = fleet.metric("config_reloads_total")
            self.wait(lambda: fleet.metric("config_reloads_total") > reloads)
            self.wait(lambda: fleet.ready() == 3)
        split(70, 30)
        sessions = [f"s{i}" for i in range(60 if FULL else 40)]

        def arm_of(session):
            before = self.arms(fleet)
            status, text = ask(fleet.gateway.port, "POST", CHAT, chat(1, 2, 1), **{"x-session-id": session})
            self.assertEqual(status, 200, text)
            after = self.arms(fleet)
            return next(arm for arm in after if after[arm] != before.get(arm, 0))
        first = {session: arm_of(session) for session in sessions}
        self.assertEqual({session: arm_of(session) for session in sessions}, first, "who has one keeps it")
        self.assertGreater(sum(arm == "b" for arm in first.values()), len(sessions) // 10)
        self.assertGreater(sum(arm == "box" for arm in first.values()), len(sessions) * 4 // 10)
        sent = {row["name"]: row["requests"] for row in fleet.rows()}
        self.assertEqual(sent["w-2"], self.arms(fleet)["b"])
        # Without a name a conversation is known by how it begins, or by the response that it goes on from.
        opening = chat(1, 2, 1)["messages"]
        turns = {number: [{"role": "user", "content": f"check {number} 2 please"}] for number in range(12)}

        def arm_of_turns(messages):
            before = self.arms(fleet)
            status, text = ask(fleet.gateway.port, "POST", CHAT, {"model": "pelton-box", "messages": messages})
            self.assertEqual(status, 200, text)
            after = self.arms(fleet)
            return next(arm for arm in after if after[arm] != before.get(arm, 0))
        begun = {number: arm_of_turns(messages) for number, messages in turns.items()}
        self.assertEqual(set(begun.values()), {"box", "b"})
        later = [{"role": "assistant", "content": "aa"}, *opening]
        self.assertEqual({number: arm_of_turns([*messages, *later]) for number, messages in turns.items()}, begun)
        for i in range(12):
            status, text = ask(fleet.gateway.port, "POST", "/v1/responses", {"model": "pelton-box", "input": f"check {i} 2 please"})
            self.assertEqual(status, 200, text)
            status, text = ask(fleet.gateway.port, "POST", "/v1/responses", {
                "model": "pelton-box", "input": f"check {i + 100} 2 please", "previous_response_id": json.loads(text)["id"]})
            self.assertEqual(status, 200, f"the arm that has made it goes on with it: {text}")
        split(100, 0)
        self.assertEqual({arm_of(session) for session in sessions[:10]}, {"box"})

    @full
    def test_a_worker_that_leaves_the_list_and_comes_back_is_as_before(self):
        """RB-03: it knows the attempts that it has had; the gateway numbers none of them again."""
        fleet = self.fleet(2)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w-0/drain")[0], 200)
        for number in range(12):
            self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, chat(number, 2, 1))[0], 200)
        for workers in 1, 2:
            reloads = fleet.metric("config_reloads_total")
            fleet.configure(fleet.ports[:workers])
            self.wait(lambda: fleet.metric("config_reloads_total") > reloads)
            self.wait(lambda: len(fleet.rows()) == workers)
        self.wait(lambda: fleet.ready() == 1)
        retries = fleet.metric("retries_total")
        for number in range(12):
            self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, chat(number, 2, 1), **{"x-request-timeout-ms": "3000"})[0], 200)
        self.assertEqual(fleet.metric("retries_total"), retries)

    def test_a_route_falls_back_to_a_pool_that_has_room(self):
        """Where its own has no worker, or those fail: before the first token only, in the file's order, and counted under the pool that answers."""
        fleet = self.fleet(3, gateway=("resume_budget = 1\nretry_budget = 0.5\n",))
        pools = "".join(f'[[pool]]\nname = "{name}"\nmodel = "pelton-box"\n[[worker]]\npool = "{name}"\nurl = "http://127.0.0.1:{fleet.ports[i]}"\n'
                        for i, name in ((1, "spare"), (2, "last")))
        fleet.configure(fleet.ports[:1], pools + '[[route]]\nmodel = "pelton-box"\nto = [{pool = "box"}]\nfallback = ["spare", "last"]\n')
        self.wait(lambda: fleet.metric("config_reloads_total") > 0 and fleet.ready() == 3)

        def asked():
            before = {row["name"]: row["requests"] for row in fleet.rows()}
            status, text = ask(fleet.gateway.port, "POST", CHAT, chat(1, 2, 1))
            after = {row["name"]: row["requests"] for row in fleet.rows()}
            return status if status != 200 else [name for name in after if after[name] != before[name]]
        self.assertEqual(asked(), ["w-0"])
        for worker, then in (("w-0", ["w-1"]), ("w-1", ["w-2"]), ("w-2", 503)):
            self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/{worker}/drain")[0], 200)
            self.assertEqual(asked(), then)
        for worker in ("w-0", "w-1", "w-2"):
            ask(fleet.admin, "POST", f"/v1/workers/{worker}/undrain")
        self.wait(lambda: fleet.ready() == 3)
        self.assertEqual(asked(), ["w-0"])
        fleet.fault(0, errors=1)
        self.assertEqual(asked(), ["w-0", "w-1"], "it fails: the next pool answers")
        self.assertEqual(fleet.metric("requests_total", pool="spare", outcome="ok"), 2)
        self.assertEqual(fleet.metric("requests_total", pool="last", outcome="ok"), 1)
        self.assertEqual(fleet.metric("fallbacks_total"), 6)  # 1 + 2 + 2 + 1

    def test_a_shadow_gets_copies_that_nobody_sees(self):
        fleet = self.fleet(2, gateway=("resume_budget = 2\n",))

        def shadow(budget):
            reloads = fleet.metric("config_reloads_total")
            fleet.configure(fleet.ports[:1], '[[pool]]\nname = "try"\nmodel = "pelton-box"\n[[worker]]\npool = "try"\n'
                            f'url = "http://127.0.0.1:{fleet.ports[1]}"\n[[route]]\nmodel = "pelton-box"\nto = [{{pool = "box"}}]\n'
                            f'shadow = {{pool = "try", share = 1, budget_tokens_per_minute = {budget}}}\n')
            self.wait(lambda: fleet.metric("config_reloads_total") > reloads)
            self.wait(lambda: fleet.ready() == 2)

        def figure(name, **labels):
            lines = [line for line in ask(fleet.admin, "GET", "/metrics")[1].splitlines() if line.startswith(f"pelton_gateway_arm_{name}{{")]
            return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if all(f'{key}="{value}"' in line for key, value in labels.items()))
        shadow(10**9)
        for i in range(12):
            check_stream(fleet.gateway.port, i, 20, i)
        self.assertEqual(ask(fleet.gateway.port, "POST", "/v1/responses", {"model": "pelton-box", "input": "check 1 2 please"})[0], 200)
        self.wait(lambda: figure("answers_total", traffic="shadow", outcome="ok") == 12)
        self.assertEqual(fleet.metric("shadow_copies_total"), 12, "a response that would be stored twice is not copied")
        self.assertEqual(fleet.metric("requests_total"), 13, "copies are no clients' requests")
        self.assertEqual({row["name"]: row["requests"] for row in fleet.rows()}, {"w-0": 13, "w-1": 12})
        self.assertEqual(figure("answers_total", arm="box", outcome="ok"), 13)
        for traffic in ("clients", "shadow"):
            self.assertEqual(figure("finished_total", traffic=traffic, reason="stop"), 12 + (traffic == "clients"))
            self.assertEqual(figure("first_token_seconds_count", traffic=traffic), 12 + (traffic == "clients"))
            self.assertGreaterEqual(figure("output_tokens_sum", traffic=traffic), 12 * 10)
            self.assertGreaterEqual(figure("token_seconds_count", traffic=traffic), 12)
        # A shadow that hangs, fails or dies is nobody's trouble, and nothing is tried again.
        fleet.fault(1, errors=1)
        check_stream(fleet.gateway.port, 31, 20, 3)
        self.wait(lambda: figure("answers_total", traffic="shadow", outcome="error") == 1)
        self.assertEqual(next(row["requests"] for row in fleet.rows() if row["name"] == "w-1"), 13)
        # Under load copies stop first: those that run are cut, and none begins.
        fleet.fault(1)
        checked = []
        stream = threading.Thread(target=lambda: checked.append(check_stream(fleet.gateway.port, 32, 500, 3)))
        stream.start()
        self.wait(lambda: fleet.row(1)["running"] == 1)
        fleet.fault(1, lie_load=100000)
        self.wait(lambda: fleet.metric("shadow_cut_total") == 1)
        stream.join()
        self.assertEqual(checked, [None], "its client got all of it")
        sent, refused = fleet.metric("shadow_copies_total"), fleet.metric("shadow_no_room_total")
        for i in range(5):
            check_stream(fleet.gateway.port, i, 20, i)
        self.assertEqual((fleet.metric("shadow_copies_total"), fleet.metric("shadow_no_room_total")), (sent, refused + 5))
        # What a shadow may cost in a minute.
        fleet.fault(1)
        self.wait(lambda: fleet.row(1)["running"] == 0)
        shadow(1)
        for i in range(5):
            check_stream(fleet.gateway.port, i, 20, i)
        self.assertEqual(fleet.metric("shadow_no_budget_total"), 4, "the first one takes more than a minute has")
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)

    def test_a_tenant_knows_of_its_own_models_only(self):
        """GW-14, TN: a model that it may not have is answered as one that nobody has."""
        keys = self.folder / "keys"
        keys.write_text("key-a acme\nkey-b other\n")
        fleet = self.fleet(1, gateway=(f'keys_file = "{keys}"\n',))
        fleet.configure(fleet.ports, '[[pool]]\nname = "hidden"\nmodel = "secret"\nkind = "openai"\n'
                        '[[tenant]]\nname = "acme"\nmodels = ["pelton-box"]\n[[tenant]]\nname = "other"\npool = "hidden"\n')
        self.wait(lambda: fleet.metric("config_reloads_total") > 0)

        def post(key, model):
            status, text = ask(fleet.gateway.port, "POST", CHAT, {**chat(1, 2, 1), "model": model}, Authorization=f"Bearer {key}")
            return status, json.loads(text)
        self.assertEqual(post("key-a", "pelton-box")[0], 200)
        hidden, unknown = post("key-a", "secret"), post("key-a", "nobody")
        self.assertEqual(hidden[0], 404)
        self.assertEqual(json.loads(json.dumps(hidden).replace("secret", "nobody")), json.loads(json.dumps(unknown)), "letter by letter")
        self.assertEqual(post("key-b", "pelton-box")[0], 404)

        def models(key):
            return [one["id"] for one in json.loads(ask(fleet.gateway.port, "GET", "/v1/models", Authorization=f"Bearer {key}")[1])["data"]]
        self.assertEqual((models("key-a"), models("key-b")), (["pelton-box"], ["secret"]))
        # Its pool has no worker that answers: never elsewhere.
        fleet.configure(fleet.ports, '[[pool]]\nname = "hidden"\nmodel = "pelton-box"\n[[route]]\nmodel = "pelton-box"\n'
                        'to = [{pool = "box"}, {pool = "hidden", weight = 0}]\n[[tenant]]\nname = "other"\npool = "hidden"\n')
        self.wait(lambda: fleet.metric("config_reloads_total") > 1)
        status, text = ask(fleet.gateway.port, "POST", CHAT, chat(1, 2, 1), Authorization="Bearer key-b", **{"x-request-timeout-ms": "300"})
        self.assertIn(status, (408, 503), text)
        self.assertEqual(post("key-a", "pelton-box")[0], 200)

    def test_open_paths_are_read_and_nothing_else(self):
        """Who has no key may ask whether the gateway is ready; whatever else is done there is refused, and ends nobody."""
        keys = self.folder / "keys"
        keys.write_text("key-a acme\n")
        fleet = self.fleet(1, gateway=(f'keys_file = "{keys}"\n',))
        for path in ("/health", "/ready", "/health/live", "/health/ready", "/v1/health"):
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                for body in (None, {"model": "pelton-box"}):
                    with self.subTest(path=path, method=method):
                        status, text = ask(fleet.gateway.port, method, path, body)
                        self.assertEqual((status, json.loads(text)["error"]["code"]), (405, "method_not_allowed"), text)
            self.assertEqual(ask(fleet.gateway.port, "GET", path)[0], 200)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, chat(1, 2, 1))[0], 401)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, chat(1, 2, 1), Authorization="Bearer key-a")[0], 200)

    @full
    def test_a_key_that_is_taken_back_ends_with_its_socket(self):
        """Each turn of a WebSocket is its key's, as that stands now, within its bounds."""
        keys = self.folder / "keys"
        keys.write_text("key-a acme\nkey-b other models=nothing\nkey-c third\n")
        fleet = self.fleet(1, gateway=(f'keys_file = "{keys}"\n',))
        a, b = (gateway_fixture.Socket(fleet.gateway.port, Authorization=f"Bearer {key}") for key in ("key-a", "key-b"))
        self.addCleanup(a.close)
        self.addCleanup(b.close)
        self.assertEqual(a.response(seed=1, input="check 1 2 please")[-1]["type"], "response.completed")
        self.assertEqual(b.response(seed=1, input="check 1 2 please")[-1]["error"]["code"], "model_not_found")
        keys.write_text("key-c third\n")
        self.wait(lambda: fleet.metric("config_reloads_total") > 0)
        self.assertEqual(a.response(seed=1, input="check 1 2 please")[-1]["error"]["code"], "invalid_api_key")
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, chat(1, 2, 1), Authorization="Bearer key-a")[0], 401)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, chat(1, 2, 1), Authorization="Bearer key-c")[0], 200)

    @full
    def test_a_model_that_its_worker_may_read_otherwise_reaches_none(self):
        """A worker of another kind has models that the pool does not list, and takes the last of two keys "model"."""
        worker = gateway_fixture.Foreign("m")
        self.addCleanup(worker.close)
        keys = self.folder / "keys"
        keys.write_text("key-a acme models=m\nkey-b other\n")
        config = self.folder / "foreign.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nkeys_file = "{keys}"\n[[pool]]\nname = "p"\nmodel = "m"\nkind = "openai"\n'
                          f'[[worker]]\npool = "p"\nurl = "http://127.0.0.1:{worker.server_port}"\n')
        gateway = gateway_fixture.Process("gateway", "--config", config)
        self.addCleanup(gateway.end)
        self.wait(lambda: ask(gateway.port, "GET", "/ready")[0] == 200)

        def post(body, kind="application/json", key="key-a"):
            link = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
            self.addCleanup(link.close)
            link.request("POST", CHAT, body, {"Content-Type": kind, "Authorization": f"Bearer {key}"})
            answer = link.getresponse()
            return answer.status, answer.read().decode()
        turns = '"messages":[{"role":"user","content":"x"}]'
        self.assertEqual(post(f'{{"model":"m",{turns}}}')[0], 200)
        for body in (f'{{"model":"m","model":"secret",{turns}}}', f'{{"model":"m","mod\\u0065l":"secret",{turns}}}', '{"model":"secret"',
                     f'{{"model":["secret"],{turns}}}'):
            with self.subTest(body=body):
                status, text = post(body)
                self.assertEqual(status, 400, text)
                self.assertEqual(json.loads(text)["error"]["type"], "invalid_request_error")
        form = '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nsecret\r\n--b--\r\n'
        self.assertEqual(post(form, "multipart/form-data; boundary=b")[0], 400)

        def get(path, key="key-a"):
            return ask(gateway.port, "GET", path, Authorization=f"Bearer {key}")
        self.assertEqual(json.loads(get("/v1/models/m")[1])["id"], "m")
        for key in ("key-a", "key-b"):
            self.assertEqual(get("/v1/models/secret", key)[0], 404)
            self.assertEqual(get("/v1/model_cards/secret", key)[0], 404)

    def test_a_key_stays_in_its_region_and_knows_its_models(self):
        """TN-14, FT-54: where the region's workers are gone there is 503, and never another region's answer; what a key may not know is 404."""
        keys = self.folder / "keys"
        keys.write_text("key-eu a region=eu\nkey-us b region=us\nkey-pool c pool=us\nkey-none d models=other\nkey-any e\nkey-tenant acme\n")
        fleet = self.fleet(2, gateway=(f'keys_file = "{keys}"\nresume_budget = 0.3\n',), pool='region = "eu"\n')

        def configure(ports):
            reloads = fleet.metric("config_reloads_total")
            fleet.configure(ports, '[[pool]]\nname = "us"\nmodel = "pelton-box"\nregion = "us"\n[[worker]]\npool = "us"\n'
                            f'url = "http://127.0.0.1:{fleet.ports[1]}"\n[[route]]\nmodel = "pelton-box"\n'
                            'to = [{pool = "box"}, {pool = "us"}]\n[[tenant]]\nname = "acme"\nregion = "eu"\n')
            self.wait(lambda: fleet.metric("config_reloads_total") > reloads)
            self.wait(lambda: len(fleet.rows()) == fleet.ready() == 1 + len(ports))
        configure(fleet.ports[:1])

        def post(key, number=1):
            before = {row["name"]: row["requests"] for row in fleet.rows()}
            status, text = ask(fleet.gateway.port, "POST", CHAT, chat(number, 2, number), Authorization=f"Bearer {key}", **{"x-session-id": f"s{number}"})
            after = {row["name"]: row["requests"] for row in fleet.rows()}
            return status, [name for name in after if after[name] != before.get(name, 0)] if status == 200 else json.loads(text)["error"]["code"]
        for number in range(6):
            self.assertEqual(post("key-eu", number), (200, ["w-0"]))
            self.assertEqual(post("key-tenant", number), (200, ["w-0"]))
            self.assertEqual(post("key-us", number), (200, ["w-1"]))
            self.assertEqual(post("key-pool", number), (200, ["w-1"]))
        self.assertEqual(post("key-none"), (404, "model_not_found"))
        configure([])
        for number in range(3):
            self.assertEqual(post("key-eu", number), (503, "no_worker"))
            self.assertEqual(post("key-tenant", number), (503, "no_worker"))
            self.assertEqual(post("key-us", number), (200, ["w-1"]))
        self.assertEqual(next(row["requests"] for row in fleet.rows() if row["name"] == "w-1"), 15)
        done = subprocess.run([gateway_fixture.BINARY, "serve", gateway_fixture.BOX, "--api-key-file", keys, "--port", "0"],
                              capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 3, "a server without pools does not pass over them")
        self.assertIn("for a gateway's keys_file", done.stderr)

    def test_workers_say_in_which_region_they_stand(self):
        """TN-14, FT-54: of a pool whose region is "*" a key that is tied to one gets the workers that say it, and 503 without them."""
        keys = self.folder / "keys"
        keys.write_text("key-eu a region=eu\nkey-us b region=us\nkey-asia c region=asia\nkey-any d\nkey-tenant acme\n")
        fleet = Regions(self.folder, 2, gateway=(f'keys_file = "{keys}"\nresume_budget = 0.3\n',),
                        pool='region = "*"\n[[tenant]]\nname = "acme"\nregion = "eu"\n')
        self.addCleanup(fleet.close)
        self.assertEqual({row["name"]: row["region"] for row in fleet.rows()}, {"w0": "eu", "w1": "us"})

        def post(key, number=1):
            before = {row["name"]: row["requests"] for row in fleet.rows()}
            status, text = ask(fleet.gateway.port, "POST", CHAT, chat(number, 2, number), Authorization=f"Bearer {key}")
            after = {row["name"]: row["requests"] for row in fleet.rows()}
            return status, [name for name in after if after[name] != before.get(name, 0)] if status == 200 else json.loads(text)["error"]["code"]
        for number in range(5):
            self.assertEqual(post("key-eu", number), (200, ["w0"]))
            self.assertEqual(post("key-tenant", number), (200, ["w0"]))
            self.assertEqual(post("key-us", number), (200, ["w1"]))
        self.assertEqual(post("key-asia")[0], 503)
        fleet.kill(0)
        self.wait(lambda: fleet.ready() == 1)
        for number in range(3):
            self.assertEqual(post("key-eu", number)[0], 503)
            self.assertEqual(post("key-tenant", number)[0], 503)
            self.assertEqual(post("key-any", number), (200, ["w1"]))
        self.assertEqual(next(row["requests"] for row in fleet.rows() if row["name"] == "w1"), 8)

    @full
    def test_a_key_that_may_hears_why(self):
        """`explain` beside a key: x-pelton-explain is answered with the decision and nothing is sent; for others it is not there. What a
        tenant's workers hold of its own prompt shows in it, and in nobody else's (TN-02, TN-03)."""
        keys = self.folder / "keys"
        keys.write_text("key-a a explain\nkey-b b explain\nkey-c c\nkey-d d explain rpm=1\n")
        fleet = self.fleet(2, gateway=(f'keys_file = "{keys}"\n',), pool=f'tokenizer = "{gateway_fixture.BOX}"\n')
        body = chat(1, 3, 1)
        body["messages"][0]["content"] += " The miller counts his sacks by the river." * 40

        def post(key, **headers):
            status, text = ask(fleet.gateway.port, "POST", CHAT, body, Authorization=f"Bearer {key}", **headers)
            self.assertEqual(status, 200, text)
            return json.loads(text)

        def hit(key):
            return max(one["hit_tokens"] for one in post(key, **{"x-pelton-explain": "1"})["candidates"])
        self.assertEqual(hit("key-a"), 0)
        self.assertEqual(sum(row["requests"] for row in fleet.rows()), 0, "nothing is sent")
        self.assertIn("choices", post("key-a"))
        # As its worker has reported it: what was sent is expected there at once, and for a while only.
        # Events of a prompt may come in parts: until no more do.
        seen = collections.deque(maxlen=10)

        def is_whole():
            seen.append(sum(json.loads(ask(fleet.admin, "GET", f"/v1/index?name=w-{i}")[1])["blocks"] for i in range(2)))
            return len(seen) == 10 and seen[0] == seen[-1] > 10
        self.wait(is_whole)
        self.assertGreater(hit("key-a"), 100)
        self.assertEqual(hit("key-b"), 0, "another tenant's")
        self.assertIn("choices", post("key-c", **{"x-pelton-explain": "1"}), "it may not: the header is nobody's")
        self.assertIn("choices", post("key-a", **{"x-pelton-explain": "0"}))
        # Of what names no model by a body there is no decision to be shown, and a key's limit holds for it as for any request.
        self.assertEqual(json.loads(ask(fleet.gateway.port, "POST", "/tokenize", {"model": "pelton-box", "prompt": "a"}, Authorization="Bearer key-a",
                                        **{"x-pelton-explain": "1"})[1])["count"], 1)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, body, Authorization="Bearer key-d", **{"x-pelton-explain": "1"})[0], 200)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, body, Authorization="Bearer key-d", **{"x-pelton-explain": "1"})[0], 429)
        decision = post("key-a", **{"x-pelton-explain": "1"})
        self.assertEqual({one["name"] for one in decision["candidates"]}, {"w-0", "w-1"})
        for one in decision["candidates"]:
            terms = one["terms"]
            total = one["bias"] * terms["first_s"] + one["rest_bias"] * terms["rest_s"] + terms["harm_s"] + terms["room_s"] + terms["pushed_out_s"]
            self.assertAlmostEqual(total, one["cost_s"], 6)
        self.assertEqual(decision["chosen"], min(decision["candidates"], key=lambda one: one["cost_s"])["name"])
        # What is expected of salted prompts is what is found.
        self.assertGreater(fleet.metric("expected_hit_tokens_total"), 100)
        self.assertEqual(fleet.metric("hit_mismatch_total"), 0)

    def test_GW_13_who_is_no_key_is_nobody(self):
        keys = self.folder / "keys"
        keys.write_text("sk-Right a\n")
        fleet = self.fleet(1, gateway=(f'keys_file = "{keys}"\n',))

        def status(*fields):
            link = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=30)
            link.putrequest("POST", CHAT)
            data = json.dumps(chat(1, 2, 1)).encode()
            for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(data))), *fields):
                link.putheader(name, value)
            try:
                link.endheaders(data)
                answer = link.getresponse()
                answer.read()
                return answer.status
            finally:
                link.close()
        self.assertEqual(status(("Authorization", "Bearer sk-Right")), 200)
        for fields in ([], [("Authorization", "Basic c2stUmlnaHQ=")], [("Authorization", "Bearer sk-right")], [("Authorization", "Bearer ")],
                       [("Authorization", "Bearer sk-Right"), ("Authorization", "Bearer sk-other")], [("x-api-key", "sk-Righ")]):
            self.assertEqual(status(*fields), 401, fields)
        self.assertIn(status(("Authorization", "Bearer " + "k" * 60_000)), (401, 431))

    def test_GW_15_and_GW_17_limits_are_the_keys_and_a_request_counts_once(self):
        """Whatever headers say of who asks; two requests of one name are two, and one that is tried at two workers is one."""
        keys = self.folder / "keys"
        keys.write_text("key-l a rpm=3\nkey-r b rpm=5\n")
        fleet = self.fleet(2, gateway=(f'keys_file = "{keys}"\n',))

        def post(key, **headers):
            link = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=30)
            link.request("POST", CHAT, json.dumps(chat(1, 2, 1)), {"Content-Type": "application/json", "Authorization": f"Bearer {key}", **headers})
            answer = link.getresponse()
            answer.read()
            link.close()
            return answer.status, answer.getheader("x-ratelimit-remaining-requests")
        for i in range(3):
            self.assertEqual(post("key-l", **{"X-Forwarded-For": f"10.0.0.{i}", "X-Real-IP": f"10.1.0.{i}"}), (200, str(2 - i)))
        self.assertEqual(post("key-l", **{"X-Forwarded-For": "10.9.9.9", "x-internal-tenant": "b", "User-Agent": "other"})[0], 429)
        self.assertEqual([post("key-r", **{"x-request-id": "same"}) for _ in range(2)], [(200, "4"), (200, "3")])
        fleet.fault(0, errors=1)
        fleet.fault(1, lie_load=100000)  # so the first one is asked first
        self.wait(lambda: fleet.row(1)["running"] > 1000)
        left = [post("key-r") for _ in range(3)]
        self.assertEqual(left, [(200, "2"), (200, "1"), (200, "0")])
        self.assertGreater(fleet.metric("retries_total"), 0, "one of them was tried at the other worker")

    def test_steps_that_take_longer_than_a_look_are_priced_by_all_of_their_time(self):
        """A worker looks every 80 ms at what it has done; each of its steps takes 300."""
        fleet = self.fleet(1, script={**gateway_fixture.SCRIPT, "step_ms": 300})
        check_stream(fleet.gateway.port, 1, 16, 7)
        status, text = ask(fleet.admin, "POST", "/v1/explain?path=/v1/chat/completions", chat(1, 20, 7))
        self.assertEqual(status, 200, text)
        [worker] = json.loads(text)["candidates"]
        self.assertGreater(worker["costs"]["fixed_s"], 0.2, worker)

    @full
    def test_the_near_zone_is_asked_while_it_has_room(self):
        fleet = self.fleet(3, gateway=('zone = "a"\n',))
        zones = ("a", "a", "b")
        fleet.configure([], "[zones]\nb = 50\n" + "".join(
            f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{port}"\nzone = "{zone}"\n' for port, zone in zip(fleet.ports, zones)))
        self.wait(lambda: fleet.metric("config_reloads_total") > 0)

        def sent():
            return {row["name"]: row["requests"] for row in fleet.rows()}
        before = sent()
        checked = []
        streams = [threading.Thread(target=lambda number=number: checked.append(check_stream(fleet.gateway.port, number, 60, number)))
                   for number in range(24)]
        for one in streams:
            one.start()
        for one in streams:
            one.join()
        self.assertEqual(checked, [None] * 24)
        after = sent()
        self.assertEqual(after["w-2"], before["w-2"], "the near ones had room")
        self.assertEqual(sum(after.values()) - sum(before.values()), 24)
        for near in (0, 1):
            fleet.fault(near, lie_load=100000)
        self.wait(lambda: all(fleet.row(near)["running"] > 1000 for near in (0, 1)))
        for number in range(5):
            check_stream(fleet.gateway.port, number, 20, number)
        self.assertEqual(sent()["w-2"], after["w-2"] + 5, "they had none")

    def test_an_operator_replaces_the_configuration(self):
        fleet = self.fleet(2)
        code, text, etag = self.verb(fleet, "config", "get")
        self.assertEqual((code, text), (0, fleet.config.read_text()))
        fresh = self.folder / "fresh.toml"
        fresh.write_text(text + "oops = 3\n")
        code, _, err = self.verb(fleet, "config", "put", fresh)
        self.assertEqual(code, 3)
        self.assertIn("has no key 'oops'", err)
        self.assertEqual(fleet.config.read_text(), text, "a file that is wrong changes nothing")
        fresh.write_text(fleet.head + f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{fleet.ports[0]}"\n')
        real = self.folder / "real.toml"  # a link stays one, and a file as readable as it was
        fleet.config.rename(real)
        fleet.config.symlink_to(real)
        real.chmod(0o640)
        self.assertEqual(self.verb(fleet, "config", "put", fresh, "--if-match", etag.strip())[0], 0)
        self.assertEqual(fleet.config.read_text(), fresh.read_text())
        self.assertTrue(fleet.config.is_symlink())
        self.assertEqual(real.stat().st_mode & 0o777, 0o640)
        self.wait(lambda: [row["name"] for row in fleet.rows()] == ["w-0"])
        code, _, err = self.verb(fleet, "config", "put", fresh, "--if-match", etag.strip())
        self.assertEqual(code, 1)
        self.assertIn("has changed since it was read", err)
        self.assertEqual(ask(fleet.admin, "PUT", "/v1/config", {}, Origin="http://attacker.example")[0], 403)
        self.assertEqual(ask(fleet.admin, "DELETE", "/v1/config")[0], 405)
        self.assertEqual(ask(fleet.gateway.port, "GET", "/v1/config")[0], 404, "GW-18")
        check_stream(fleet.gateway.port, 7, 20, 7)

    def test_the_configuration_is_printed_with_what_it_leaves_out(self):
        """What is printed is a file that means the same: printed again it is the same."""
        file, again = self.folder / "a.toml", self.folder / "b.toml"
        keys = self.folder / "keys"
        keys.write_text("key-a acme\n")
        file.write_text(f'[gateway]\nadmin = "[::1]:9002"\nretries = 1\nretry_budget = 0.25\nkeys_file = "{keys}"\nallowed_cidrs = ["10.0.0.0/8"]\n'
                        '[etcd]\nendpoints = ["10.0.0.9:2379"]\n[kubernetes]\napi = "http://10.0.0.1:80"\n'
                        '[[pool]]\nname = "a\\"b"\nmodel = ["m", "n"]\n[[pool]]\nname = "k"\nmodel = "m"\nkubernetes = "ml/x:fleet"\n'
                        '[[pool]]\nname = "copies"\nmodel = "m"\n[[route]]\nmodel = "m"\ntenant = "acme"\nto = [{pool = "a\\"b", weight = 3}, {pool = "k", arm = "z"}]\n'
                        'sticky = "user"\nshadow = {pool = "copies", share = 0.25}\nfallback = ["k"]\n'
                        '[[tenant]]\nname = "acme"\nmodels = ["m"]\nweight = 2.5\n[[worker]]\npool = "k"\nurl = "http://10.0.0.5:9000"\nzone = "x"\n')

        def printed(of):
            done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", of, "--print-config"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout
        text = printed(file)
        for line in ("retries = 1", "retry_budget = 0.25", 'fallback = ["k"]', "weight = 2.5", "resume_budget = 10", 'allowed_cidrs = ["10.0.0.0/8"]', 'prefix = "/pelton/v1/main"', 'sticky = "user"',
                     'shadow = {pool = "copies", share = 0.25, budget_tokens_per_minute = 20000}',
                     'to = [{pool = "a\\"b", arm = "a\\"b", weight = 3}, {pool = "k", arm = "z", weight = 1}]'):
            self.assertIn(line, text)
        self.assertNotIn("key-a", text)
        again.write_text(text)
        self.assertEqual(printed(again), text)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)

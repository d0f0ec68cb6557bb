#!/usr/bin/env python3
"""Requests through a gateway that are more than one answer over HTTP: gRPC calls, stored responses by the worker that made them, and keys with
limits.

usage: gateway_requests_test.py BINARY
"""
import asyncio
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import BOX, Fleet, Socket, ask, chat, events, letters
from ports import free_port
from tiers import full

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "chaos"))
from wire import Connection, GrpcCall, field, fields  # noqa: E402

CHAT = "/v1/chat/completions"
UNAUTHENTICATED, NOT_FOUND, INVALID, UNAVAILABLE = 16, 5, 3, 14


def grpc(port, method, message, timeout=None, metadata=()):
    """The messages of a call, its status and what it says."""
    async def run():
        link = await Connection.open(port)
        call = GrpcCall(link)
        await call.start(method, message, timeout, metadata)
        said = [data async for data in call.messages()]
        link.writer.close()
        return said, call.status, call.message
    return asyncio.run(run())


def chat_message(number, count, seed, kind="check", model="pelton-box"):
    user = field(1, "user") + field(2, f"{kind} {number} {count} please")
    return field(1, model) + field(4, field(1, user)) + field(5, field(8, seed))


def texts(messages):
    """Text, reasoning and finish reasons of a stream."""
    text, reasoning, finish = "", "", []
    for number, value in (one for data in messages for one in fields(data)):
        if number == 2:
            text += value.decode()
        if number == 3:
            reasoning += value.decode()
        if number == 6 and value:
            finish.append(value.decode())
    return text, reasoning, finish


class Requests(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def fleet(self, *args, **more):
        fleet = Fleet(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def wait(self, what):
        end = time.monotonic() + 20
        done = what()
        while not done and time.monotonic() < end:
            time.sleep(0.02)
            done = what()
        self.assertTrue(done)

    def test_grpc_passes_and_moves(self):
        """FT-11: a call goes on at another worker when its own is killed."""
        port = free_port()
        fleet = self.fleet(3, gateway=(f'grpc_listen = "127.0.0.1:{port}"\nresume_budget = 1\n',))
        said, status, words = grpc(port, "Generate", chat_message(71, 60, 9, "think"))
        self.assertEqual((status, texts(said)), (0, ("", letters(9, 71, 60), ["stop"])), words)
        answers, faults = {}, []

        def client(number):
            said, status, words = grpc(port, "Generate", chat_message(number, 700, number))
            answers[number] = texts(said)
            if status != 0:
                faults.append((number, status, words))
        threads = [threading.Thread(target=client, args=(number,)) for number in range(200, 212)]
        for one in threads:
            one.start()
        self.wait(lambda: sum(row["running"] for row in fleet.rows()) >= 8)
        first = int(max(fleet.rows(), key=lambda row: row["running"])["name"][1])
        fleet.kill(first)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        for number, answer in answers.items():
            self.assertEqual(answer, (letters(number, number, 700), "", ["stop"]), number)
        self.assertGreater(fleet.metric("migrations_total") + fleet.metric("retries_total"), 0)
        # One reply: Tokenize. What is wrong is said as a worker says it.
        said, status, words = grpc(port, "Tokenize", field(1, "pelton-box") + field(2, "Hello there"))
        self.assertEqual((status, len(said)), (0, 1), words)
        self.assertGreater(len(dict(fields(said[0]))[1]), 0)
        self.assertEqual(grpc(port, "Generate", chat_message(1, 1, 1, model="nobody"))[1], NOT_FOUND)
        self.assertEqual(grpc(port, "Generate", field(1, "pelton-box"))[1], INVALID)
        # Over HTTP there are no such paths.
        self.assertEqual(ask(fleet.gateway.port, "POST", "/pelton.v1.Inference/Generate", {})[0], 404)
        # Nobody is left to go on.
        heard = []
        thread = threading.Thread(target=lambda: heard.append(grpc(port, "Generate", chat_message(300, 1500, 1))))
        thread.start()
        self.wait(lambda: any(row["running"] for row in fleet.rows()))
        time.sleep(0.5)
        for victim in {0, 1, 2} - {first}:
            fleet.kill(victim)
        thread.join()
        self.assertEqual(heard[0][1], UNAVAILABLE, heard[0][2])

    @full
    def test_a_grpc_sessions_turns_move(self):
        """Each turn is a call of its own to whoever answers it: FT-11 holds for it, and for the turn behind it."""
        port = free_port()
        fleet = self.fleet(2, gateway=(f'grpc_listen = "127.0.0.1:{port}"\nresume_budget = 1\n',))

        def turn(number, count, seed, continues=0):
            return field(1, chat_message(number, count, seed)) + (field(3, 1) if continues else b"")
        heard = []
        turns = [turn(81, 900, 4), turn(82, 40, 4, 1), field(1, field(1, "nobody") + field(2, "x")), field(9, "none")]
        thread = threading.Thread(target=lambda: heard.append(grpc(port, "Session", turns[:2])))
        thread.start()
        self.wait(lambda: any(row["running"] for row in fleet.rows()))
        time.sleep(0.2)
        fleet.kill(next(int(row["name"][1]) for row in fleet.rows() if row["running"]))
        thread.join()
        said, status, words = heard[0]
        self.assertEqual(status, 0, words)
        chunks = [dict(fields(data)) for data in said]
        for number, (prompt, count) in enumerate(((81, 900), (82, 40)), 1):
            answer = texts([chunk[2] for chunk in chunks if chunk[1] == number])
            self.assertEqual(answer, (letters(4, prompt, count), "", ["stop"]))
        # What is wrong is said of its turn, and the session ends as the client ends it.
        said, status, words = grpc(port, "Session", turns[2:])
        self.assertEqual(status, 0, words)
        errors = {chunk.get(1, 0): dict(fields(chunk[3]))[1] for chunk in (dict(fields(data)) for data in said)}
        self.assertEqual(errors, {1: NOT_FOUND, 0: INVALID})

    @full
    def test_grpc_streams_leave_a_worker_that_is_stopped(self):
        port = free_port()
        fleet = self.fleet(2, gateway=(f'grpc_listen = "127.0.0.1:{port}"\n',))
        answers, faults = {}, []

        def client(number):
            said, status, words = grpc(port, "Generate", chat_message(number, 700, number, "think" if number % 2 else "check"))
            answers[number] = texts(said)
            if status != 0:
                faults.append((number, status, words))
        threads = [threading.Thread(target=client, args=(number,)) for number in range(400, 408)]
        for one in threads:
            one.start()
        self.wait(lambda: sum(row["running"] for row in fleet.rows()) == 8)
        leaving = int(max(fleet.rows(), key=lambda row: row["running"])["name"][1])
        worker, fleet.workers[leaving] = fleet.workers[leaving], None
        worker.end(signal.SIGTERM)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        for number, answer in answers.items():
            text = letters(number, number, 700)
            self.assertEqual(answer, (("", text) if number % 2 else (text, "")) + (["stop"],), number)
        self.assertGreater(fleet.metric("drain_moves_total"), 0, list(fleet.gateway.log)[-20:])
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)

    @full
    def test_tenants_share_nothing_through_two_gateways_and_a_move(self):
        """TN-02 to 05: a tenant finds what it has asked before through either gateway, and nobody else does, also after a move."""
        keys = self.folder / "keys"
        keys.write_text("".join(f"key-{who}{number} {who}-{number}\n" for number in (*range(8), 50) for who in "ab"))
        fleet = self.fleet(2, gateway=(f'keys_file = "{keys}"\n',), pool=f'tokenizer = "{gateway_fixture.BOX}"\n')
        other = gateway_fixture.Process("gateway", "--config", self.other_config(fleet))
        self.addCleanup(other.end)
        self.wait(lambda: ask(other.port, "GET", "/ready")[0] == 200)
        padding = "The miller counts his sacks by the river. " * 40

        def body(number, count=12, **more):
            return {"model": "pelton-box", "seed": 3, "messages": [{"role": "user", "content": f"check {number} {count} please. {padding}"}], **more}

        def found(gateway, key, number):
            status, text = ask(gateway.port, "POST", CHAT, body(number), Authorization=f"Bearer {key}{number}")
            self.assertEqual(status, 200, text)
            return (json.loads(text)["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        for number in range(8):
            first, second = (fleet.gateway, other) if number % 2 else (other, fleet.gateway)
            self.assertEqual(found(first, "key-a", number), 0)
            self.assertEqual(found(second, "key-b", number), 0, "another tenant's")
            self.wait(lambda: found(second, "key-a", number) > 100)
            self.wait(lambda: found(first, "key-b", number) > 100)
        # What goes on elsewhere is computed there under its own tenant's salt.
        heard = []

        def stream():
            link = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=60)
            link.request("POST", CHAT, json.dumps(body(50, 500, stream=True)), {"Content-Type": "application/json", "Authorization": "Bearer key-a50"})
            heard.extend(line[6:].strip().decode() for line in link.getresponse() if line.startswith(b"data: "))
            link.close()
        thread = threading.Thread(target=stream)
        thread.start()
        self.wait(lambda: heard)
        busy = []
        self.wait(lambda: busy.extend(row["name"] for row in fleet.rows() if row["running"]) or busy)
        fleet.kill(int(busy[0][1]))
        thread.join()
        self.assertEqual(heard[-1], "[DONE]")
        said = "".join(choice["delta"].get("content") or "" for one in heard[:-1] for choice in json.loads(one)["choices"])
        self.assertEqual(said, letters(3, 50, 500))
        for gateway in (fleet.gateway, other):
            status, text = ask(gateway.port, "POST", CHAT, body(50, 500, max_tokens=8), Authorization="Bearer key-b50")
            self.assertEqual(status, 200, text)
            if gateway is fleet.gateway:
                self.assertEqual((json.loads(text)["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0, 0)
        status, text = ask(other.port, "POST", CHAT, body(50, 500, max_tokens=8), Authorization="Bearer key-a50")
        self.assertGreater(json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"], 100, "it finds what moved")

    def test_lists_of_other_apis_are_of_all_workers(self):
        fleet = self.fleet(2)
        port = fleet.gateway.port

        def get(path, at=port):
            status, text = ask(at, "GET", path)
            self.assertEqual(status, 200, text)
            return json.loads(text)
        slots = get("/slots")
        self.assertEqual([slot["id"] for slot in slots], list(range(2 * 128)))
        self.assertEqual(len(slots), sum(len(get("/slots", worker.port)) for worker in fleet.workers))
        self.assertEqual(ask(port, "GET", "/slots?fail_on_no_slot=1")[0], 200)
        # Since when a model is there the gateway does not know: since its own start, whatever lists it.
        created = get("/v1/models")["data"][0]["created"]
        self.assertAlmostEqual(created, time.time(), delta=3600)
        day = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
        for path in ("/api/tags", "/api/ps"):
            self.assertEqual(get(path)["models"][0]["modified_at"][:len(day)], day, path)
        # One identity, whoever is asked.
        listed = [get(path, at)["models"] for at in (port, *(worker.port for worker in fleet.workers)) for path in ("/api/tags", "/api/ps")]
        self.assertEqual({one["name"]: one["digest"] for one in listed[0]}.keys(), {"pelton-box"})
        self.assertEqual(len({models[0]["digest"] for models in listed}), 1, listed)
        fleet.kill(0)
        fleet.kill(1)
        fleet.wait_for(0)
        self.assertEqual((get("/slots"), get("/api/ps")["models"]), ([], []))
        self.assertEqual(ask(port, "GET", "/slots?fail_on_no_slot=1")[0], 503)
        # And what any worker would refuse waits for none.
        for path in ("/v1/chat/completions", "/v1/embeddings", "/api/chat", "/completion"):
            status, text = ask(port, "POST", path)
            self.assertEqual((status, "not valid JSON" in text), (400, True), text)

    def test_a_free_slot_is_asked_for_by_any_value(self):
        fleet = self.fleet(1, script={**gateway_fixture.SCRIPT, "slots": 1})
        link = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=30)
        link.request("POST", CHAT, json.dumps({"model": "pelton-box", "stream": True, "messages": [
            {"role": "user", "content": "think 5 1500 please"}]}), {"Content-Type": "application/json"})
        answer = link.getresponse()
        answer.readline()  # it is running
        for port in (fleet.workers[0].port, fleet.gateway.port):
            self.wait(lambda: ask(port, "GET", "/slots?fail_on_no_slot=1")[0] == 503)  # noqa: B023
            for value, status in (("=true", 503), ("=0", 503), ("=", 200), ("", 200)):
                self.assertEqual(ask(port, "GET", "/slots?fail_on_no_slot" + value)[0], status, value)
        answer.close()
        link.close()

    def test_a_path_that_is_known_by_another_method_is_405(self):
        fleet = self.fleet(1)
        for port in (fleet.workers[0].port, fleet.gateway.port):
            for method, path, allowed in (("GET", "/api/chat", "POST"), ("GET", "/completion", "POST"), ("DELETE", "/generate", "POST"),
                                          ("DELETE", "/api/tags", "GET, HEAD"), ("PUT", "/slots", "GET, HEAD")):
                link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                link.request(method, path)
                answer = link.getresponse()
                text = answer.read().decode()
                link.close()
                self.assertEqual((answer.status, answer.headers["Allow"]), (405, allowed), (method, path, text))
                if path.startswith("/api/"):
                    self.assertIsInstance(json.loads(text)["error"], str)
            self.assertEqual(ask(port, "GET", "/api/pull")[0], 404)

    def test_stored_responses_are_found_where_they_were_made(self):
        fleet = self.fleet(3)
        other = gateway_fixture.Process("gateway", "--config", self.other_config(fleet))
        self.addCleanup(other.end)
        self.wait(lambda: ask(other.port, "GET", "/ready")[0] == 200)
        made = []
        for number in range(9):
            status, text = ask(fleet.gateway.port, "POST", "/v1/responses", {"model": "pelton-box", "seed": 3,
                                                                            "input": f"check {number} 12 please"})
            self.assertEqual(status, 200, text)
            made.append(json.loads(text))
        self.assertGreater(len([row for row in fleet.rows() if row["requests"] > 0]), 1, "not all at one")
        # Known here; and another gateway, which knows of none, asks one worker after the other.
        for port in (fleet.gateway.port, other.port):
            for number, response in enumerate(made):
                status, text = ask(port, "GET", f"/v1/responses/{response['id']}")
                self.assertEqual((status, json.loads(text)["output"]), (200, response["output"]), text)
                status, text = ask(port, "GET", f"/v1/responses/{response['id']}/input_items")
                self.assertIn(f"check {number} 12 please", text)
                status, text = ask(port, "POST", "/v1/responses", {"model": "pelton-box", "seed": 3, "input": f"check 5{number} 8 please",
                                                                  "previous_response_id": response["id"]})
                self.assertEqual(status, 200, text)
                body = json.loads(text)
                self.assertEqual(body["output"][-1]["content"][0]["text"], letters(3, int(f"5{number}"), 8))
                self.assertGreater(body["usage"]["input_tokens"], response["usage"]["input_tokens"] + 10)
        data = [json.loads(one) for one in events(other.port, "/v1/responses", {
            "model": "pelton-box", "input": "check 60 8 please", "seed": 3, "stream": True, "previous_response_id": made[0]["id"]}) if one != "[DONE]"]
        self.assertEqual(data[-1]["type"], "response.completed")
        # One that was made over a stream, too.
        streamed = data[-1]["response"]["id"]
        self.assertEqual(ask(fleet.gateway.port, "GET", f"/v1/responses/{streamed}")[0], 200)
        item = made[1]["output"][-1]["id"]
        status, text = ask(other.port, "POST", "/v1/responses", {"model": "pelton-box", "seed": 3, "input": [
            {"type": "item_reference", "id": item}, {"role": "user", "content": "check 61 8 please"}]})
        self.assertEqual(status, 200, text)
        self.assertEqual(ask(other.port, "DELETE", f"/v1/responses/{made[2]['id']}")[0], 200)
        for port in (fleet.gateway.port, other.port):
            self.assertEqual(ask(port, "GET", f"/v1/responses/{made[2]['id']}")[0], 404)
        # What nobody has is what nobody has.
        status, text = ask(fleet.gateway.port, "POST", "/v1/responses", {"model": "pelton-box", "input": "x",
                                                                        "previous_response_id": "resp_nobody"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (400, "previous_response_not_found"))
        self.assertEqual(ask(fleet.gateway.port, "GET", "/v1/responses/resp_nobody")[0], 404)
        self.assertEqual(fleet.metric("retries_total") + fleet.metric("quarantined_total"), 0)
        self.assertEqual(fleet.metric("suspects"), 0)

    def upload(self, port, number):
        line = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {
            "model": "pelton-box", "seed": 3, "messages": [{"role": "user", "content": f"check {number} 8 please"}]}}
        form = "".join(f'--x\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n' for name, more, value in (
            ("purpose", "", "batch"), ("file", '; filename="in.jsonl"', json.dumps(line) + "\n"))) + "--x--\r\n"
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        link.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=x"})
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        self.assertEqual(answer.status, 200, text)
        return json.loads(text)["id"]

    def test_files_and_batches_are_found_where_they_are(self):
        fleet = self.fleet(3, serve=("--executor", f"modelled:{self.folder / 'script.json'}", "--batches", self.folder / "batches{i}"))
        other = gateway_fixture.Process("gateway", "--config", self.other_config(fleet))
        self.addCleanup(other.end)
        self.wait(lambda: ask(other.port, "GET", "/ready")[0] == 200)
        made = [self.upload(fleet.gateway.port, number) for number in range(6)]
        self.assertGreater(len([row for row in fleet.rows() if row["requests"] > 0]), 1, "not all at one")
        batches = []
        for number, file in enumerate(made):
            # Known here, and at another gateway, which knows of none.
            port = (fleet.gateway.port, other.port)[number % 2]
            self.assertEqual(ask(port, "GET", f"/v1/files/{file}")[0], 200)
            status, text = ask(port, "POST", "/v1/batches", {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"})
            self.assertEqual(status, 200, text)
            batch, found = json.loads(text)["id"], []
            batches.append(batch)

            def is_over():
                found[:] = [json.loads(ask(fleet.gateway.port, "GET", f"/v1/batches/{batch}")[1])]
                return found[0]["status"] == "completed"
            self.wait(is_over)
            status, text = ask(port, "GET", f"/v1/files/{found[0]['output_file_id']}/content")
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["response"]["body"]["choices"][0]["message"]["content"], letters(3, number, 8))
        self.assertEqual(ask(fleet.gateway.port, "GET", "/v1/files/file-nobody")[0], 404)
        self.check_a_worker_that_is_away_keeps_them(fleet, other, made[0], batches[0])
        # What the one that is left has is not all.
        fleet.wait_for(1)
        for path in ("/v1/files", "/v1/batches"):
            status, text = ask(fleet.gateway.port, "GET", path)
            self.assertEqual((status, json.loads(text).get("error", {}).get("code")), (501, "not_supported"), text)

    def test_what_no_worker_makes_is_said_without_one(self):
        fleet = self.fleet(1)
        for worker in ("with", "without"):
            for method, path in (("POST", "/v1/images/generations"), ("POST", "/v1/moderations"), ("GET", "/v1/videos"), ("GET", "/v1/realtime")):
                status, text = ask(fleet.gateway.port, method, path, {"model": "pelton-box"} if method == "POST" else None)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (501, "modality_not_supported"), (worker, path))
            if worker == "with":
                fleet.kill(0)
                fleet.wait_for(0)

    def check_a_worker_that_is_away_keeps_them(self, fleet, other, file, batch):
        """That others do not have them is no answer, neither where their worker is known nor where it is not."""
        def status_at(port, method, path, body=None):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            link.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            answer = link.getresponse()
            text = answer.read().decode()
            link.close()
            if answer.status == 503:
                self.assertEqual(json.loads(text)["error"]["code"], "worker_away", text)
                self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
            return answer.status

        asked = [("GET", f"/v1/files/{file}", None), ("GET", f"/v1/files/{file}/content", None), ("GET", f"/v1/batches/{batch}", None),
                 ("POST", f"/v1/batches/{batch}/cancel", None),
                 ("POST", "/v1/batches", {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"})]
        late = gateway_fixture.Process("gateway", "--config", self.other_config(fleet))  # knows of none
        self.addCleanup(late.end)
        ports = (fleet.gateway.port, other.port, late.port)
        self.wait(lambda: ask(late.port, "GET", "/ready")[0] == 200)
        home = next(i for i, worker in enumerate(fleet.workers) if ask(worker.port, "GET", f"/v1/files/{file}")[0] == 200)
        fleet.kill(home)
        for port in ports:
            for method, path, body in asked:
                self.assertEqual(status_at(port, method, path, body), 503, (method, path))
        self.assertEqual(status_at(late.port, "GET", "/v1/files/file-nobody"), 503, "who is away may have it")
        fleet.start(home)
        fleet.wait_for(3)
        for port in ports:
            self.wait(lambda: status_at(port, "GET", f"/v1/batches/{batch}") == 200)  # noqa: B023
            self.assertEqual(json.loads(ask(port, "GET", f"/v1/batches/{batch}")[1])["status"], "completed")
            self.wait(lambda: status_at(port, "GET", "/v1/files/file-nobody") == 404)  # noqa: B023
        # Its own worker knows best that it is there no more, whoever else is away.
        self.assertEqual(ask(fleet.gateway.port, "DELETE", f"/v1/files/{file}")[0], 200)
        fleet.kill((home + 1) % 3)
        fleet.kill((home + 2) % 3)
        self.assertEqual(status_at(fleet.gateway.port, "GET", f"/v1/files/{file}"), 404)

    def test_a_running_answer_is_controlled_where_it_runs(self):
        fleet = self.fleet(3)
        link = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=30)
        link.request("POST", CHAT, json.dumps({"model": "pelton-box", "stream": True, "messages": [
            {"role": "user", "content": "think 5 400 please"}]}), {"Content-Type": "application/json"})
        answer = link.getresponse()
        first = json.loads(answer.readline().removeprefix(b"data: "))
        status, text = ask(fleet.gateway.port, "POST", CHAT + "/control", {"id": first["id"], "action": "reasoning_end"})
        self.assertEqual((status, json.loads(text).get("status")), (200, "accepted"), text)
        answer.read()
        link.close()
        status, text = ask(fleet.gateway.port, "POST", CHAT + "/control", {"id": "chatcmpl-nobody", "action": "reasoning_end"})
        self.assertEqual(status, 404, text)

    def other_config(self, fleet):
        path = self.folder / "other.toml"
        path.write_text("".join(line for line in fleet.config.read_text().splitlines(True) if not line.startswith("admin")))
        return path

    def test_a_keys_limits_are_kept(self):
        """As a worker keeps them: 429 with the time after which it may come again, and what is left in headers."""
        keys = self.folder / "keys"
        keys.write_text("key-r acme rpm=3\nkey-c other concurrent=2\nkey-t third tpm=600\nkey-free fourth\n")
        grpc_port = free_port()
        fleet = self.fleet(2, gateway=(f'keys_file = "{keys}"\ngrpc_listen = "127.0.0.1:{grpc_port}"\n',))

        def post(key, body, port=fleet.gateway.port):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            link.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
            answer = link.getresponse()
            text = answer.read().decode()
            link.close()
            return answer.status, json.loads(text), dict(answer.getheaders())
        for left in (2, 1, 0):
            status, body, headers = post("key-r", chat(1, 3, 1))
            self.assertEqual(status, 200, body)
            self.assertEqual((headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]), ("3", str(left)))
        status, body, headers = post("key-r", chat(1, 3, 1))
        self.assertEqual((status, body["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertGreater(int(headers["Retry-After"]), 0)
        # Counting tokens is no work; gRPC is.
        self.assertEqual(ask(fleet.gateway.port, "POST", "/tokenize", {"model": "pelton-box", "prompt": "x"},
                             Authorization="Bearer key-r")[0], 200)
        self.assertEqual(grpc(grpc_port, "Generate", chat_message(1, 3, 1), metadata=(("authorization", "Bearer key-r"),))[1], 8)
        self.assertEqual(grpc(grpc_port, "Generate", chat_message(1, 3, 1))[1], UNAUTHENTICATED)
        # A session is asked for its key before its first turn; its turns are counted.
        self.assertEqual(grpc(grpc_port, "Session", [])[1], UNAUTHENTICATED)
        self.assertEqual(grpc(grpc_port, "Session", [], metadata=(("authorization", "Bearer wrong"),))[1], UNAUTHENTICATED)
        said, status, words = grpc(grpc_port, "Session", [field(1, chat_message(1, 3, 1))], metadata=(("authorization", "Bearer key-r"),))
        self.assertEqual(status, 0, words)
        self.assertEqual(dict(fields(dict(fields(said[0]))[3]))[1], 8)
        self.assertEqual(post("key-free", chat(1, 3, 1))[0], 200)
        # At once: two, and the third when one of them has ended.
        running = [threading.Thread(target=post, args=("key-c", chat(number, 400, 1))) for number in (1, 2)]
        for one in running:
            one.start()
        self.wait(lambda: sum(row["running"] for row in fleet.rows()) == 2)
        self.assertEqual(post("key-c", chat(3, 3, 1))[0], 429)
        for one in running:
            one.join()
        self.wait(lambda: post("key-c", chat(3, 3, 1))[0] == 200)
        # Tokens: what was reserved and not used comes back.
        served = 0
        while served < 20 and post("key-t", chat(served, 100, 1))[0] == 200:
            served += 1
        self.assertTrue(2 <= served < 20, served)
        text = ask(fleet.admin, "GET", "/metrics")[1]
        for limit in ("requests", "tokens", "concurrent"):
            line = next(line for line in text.splitlines() if line.startswith(f'pelton_gateway_limited_total{{limit="{limit}"}}'))
            self.assertGreater(float(line.split()[-1]), 0, limit)

    @full
    def test_requests_are_recorded_as_numbers_and_played_again(self):
        """What came is written without a word of it; simulator and load generator read it."""
        record = self.folder / "requests.jsonl"
        fleet = self.fleet(2, pool=f'tokenizer = "{BOX}"\n', record=("--record-requests", record))
        shared = "The secretive miller counts his sacks by the river. " * 30
        usage = []
        for turn in range(6):
            body = {"model": "pelton-box", "messages": [{"role": "user", "content": f"{shared}check {turn} 20 please"}]}
            status, text = ask(fleet.gateway.port, "POST", CHAT, body)
            self.assertEqual(status, 200, text)
            usage.append(json.loads(text)["usage"])
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, {"model": "pelton-box", "messages": "none"})[0], 400)
        leaver = Socket(fleet.gateway.port)  # of another protocol: it is counted as well
        leaver.response(input="check 9 5 please")
        leaver.close()
        self.wait(lambda: record.read_text().count("\n") == 8)
        text = record.read_text()
        for word in ("secretive", "miller", "check", "none"):
            self.assertNotIn(word, text)
        lines = [json.loads(line) for line in text.splitlines()]
        chats = [line for line in lines if line["outcome"] == "ok" and line.get("hash_ids") and line["input_length"] > 300]
        self.assertEqual(len(chats), 6)
        names = [line["hash_ids"] for line in chats]
        blocks = len(names[0]) - 2  # the last ones hold what differs
        self.assertGreater(blocks, 3)
        for line, said in zip(chats, usage):
            self.assertEqual((line["pool"], line["class"], line["status"]), ("box", "1k:64", 200))
            self.assertEqual((line["input_length"], line["output_length"]), (said["prompt_tokens"], said["completion_tokens"]))
            self.assertEqual(line.get("cached_tokens", 0), said["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(line["block_tokens"], 64)
            self.assertEqual(line["hash_ids"][:blocks], names[0][:blocks])
            self.assertGreater(line["duration_ms"], 0)
            self.assertGreaterEqual(line["duration_ms"], line["first_token_ms"])
            self.assertAlmostEqual(line["timestamp"] / 1000, time.time(), delta=60)
        self.assertEqual({line["status"] for line in lines}, {200, 400})
        run = subprocess.run([gateway_fixture.BINARY, "simulate", "gpt-oss-20b", "--gpu", "h100", "--requests", record, "--json", "-"],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        played = json.loads(run.stdout)
        self.assertEqual((played["num_prompts"], played["completed"]), (8, 8))
        self.assertEqual(played["total_input_tokens"], sum(max(line["input_length"], 1) for line in lines))
        self.assertEqual(played["total_output_tokens"], sum(max(line["output_length"], 1) for line in lines))
        run = subprocess.run([gateway_fixture.BINARY, "bench", "serve", "--base-url", f"http://127.0.0.1:{fleet.gateway.port}",
                              "--tokenizer", BOX, "--dataset-name", "trace", "--dataset-path", record, "--trace-speed", "10",
                              "--result-filename", self.folder / "bench.json", "--save-result"],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads((self.folder / "bench.json").read_text())["num_prompts"], 8)
        for bad, why in (("{\"timestamp\": 1}", "input_length"), ('{"timestamp":1,"input_length":-1,"output_length":1}', "lengths"), ("", "no requests")):
            wrong = self.folder / "wrong.jsonl"
            wrong.write_text(bad)
            run = subprocess.run([gateway_fixture.BINARY, "simulate", "gpt-oss-20b", "--gpu", "h100", "--requests", wrong],
                                 capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(run.returncode, 2, run.stdout)
            self.assertIn(why, run.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)

#!/usr/bin/env python3
"""Does the checker see what it is there to see? And is the bad network as bad as it was told to be?

usage: chaos_test.py        needs no server: one of its own says what no server should
"""
import asyncio
import contextlib
import gc
import json
import pathlib
import random
import socket
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import asking  # noqa: E402
import kinds  # noqa: E402
import load as load_module  # noqa: E402
import pattern  # noqa: E402
import proxy  # noqa: E402
from answers import Chat, Messages, Responses  # noqa: E402
from endings import Left  # noqa: E402
from pattern import Tally, Wrong  # noqa: E402
from questions import Plan, Question  # noqa: E402
from wire import Connection, Cut, field, fields  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def chunk(content=None, finish=None, name="x", **more):
    return json.dumps({"id": name, "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}],
                       **more})


class Checker(unittest.TestCase):
    SAID = ["7b0 ", "7b1 ", "7b2 "]

    def read(self, *events):
        reader = Chat([Tally.of("say", 7, 0, 3)], 50)
        for event in events:
            reader.event("", event)
        reader.check()
        return reader

    def test_right_answers_pass(self):
        usage = {"completion_tokens": 9}
        self.assertTrue(self.read(*map(chunk, self.SAID), chunk(finish="stop"), chunk(usage=usage), "[DONE]").done)
        self.assertTrue(self.read(chunk("7b0 7"), chunk(finish="length", usage={"completion_tokens": 50}), "[DONE]").done)

    def test_wrong_ones_do_not(self):
        end = (chunk(finish="stop"), "[DONE]")
        lost, doubled = self.SAID[:1] + self.SAID[2:], self.SAID[:2] + self.SAID[1:]
        for events in ([*map(chunk, lost), *end], [*map(chunk, doubled), *end],
                       [*map(chunk, ["7b0 ", "8b1 "]), *end],             # another's
                       [*map(chunk, ["7b1 ", "7b0 ", "7b2 "]), *end],     # out of order
                       [*map(chunk, self.SAID[:2]), *end],                # the last one is missing
                       [*map(chunk, self.SAID), chunk("!"), *end],        # one too many
                       [*map(chunk, self.SAID), *end, chunk("7b3 ")],     # after the end
                       [chunk("7b0 "), chunk(finish="length", usage={"completion_tokens": 4}), "[DONE]"],
                       [chunk("7b0 "), chunk("7b1 ", name="y")],          # another answer's id
                       [chunk("7b0 ", finish="content_filter")]):
            with self.assertRaises(Wrong, msg=events):
                self.read(*events)

    def test_stop_strings(self):
        def end(text, finish):
            tally = Tally.of("say", 7, 0, 5)
            tally.stop_before("7b0 7b1 ", "7b2 ")
            tally.add("content", text)
            tally.end(finish)
            tally.whole(9, 9)
        end("7b0 7b1 ", "stop")
        end("7b0 7b1 7b", "length")
        for text, finish in (("7b0 7b1 7b", "stop"), ("7b0 ", "stop"), ("7b0 7b1 7b2 ", "length")):
            with self.assertRaises(Wrong, msg=text):
                end(text, finish)

    def test_other_protocols(self):
        message = Messages([Tally.of("think", 7, 1, 1)], 50)
        with self.assertRaises(Wrong):
            message.event("content_block_delta", json.dumps({"type": "content_block_delta", "delta": {"text": "7a0 "}}))
        for stop, fine in (("max_tokens", True), ("tool_use", False)):
            body = json.dumps({"content": [{"type": "tool_use", "name": "note", "input": {}}], "stop_reason": stop,
                               "usage": {"output_tokens": 50}})
            with contextlib.nullcontext() if fine else self.assertRaises(Wrong):
                message = Messages([Tally.of("call", 7, 0, 3)], 50)
                message.whole(body)
                message.check()
        response = Responses([Tally.of("say", 7, 0, 3)], 50)
        response.event("", json.dumps({"type": "response.in_progress", "sequence_number": 0}))
        with self.assertRaises(Wrong):  # an event is missing
            response.event("", json.dumps({"type": "response.output_text.delta", "sequence_number": 2, "delta": "7b0 "}))

    def test_protobuf(self):
        message = field(10, 300) + field(2, "été") + field(4, field(1, 0))
        self.assertEqual(list(fields(message)), [(10, 300), (2, "été".encode()), (4, b"\x08\0")])

    def test_the_script_says_what_is_expected(self):
        rules = {rule["when"]: rule["then"] for rule in json.loads(pattern.script())["rules"]}
        for way in ("say", "think", "call", "json", "text"):
            self.assertIn({"counted": 2}, rules[way + " for "])
            self.assertEqual({"counted": 1} in rules[way + " for "], bool(Tally.of(way, 7, 1, 1).expected["reasoning"]))


class FakeServer:
    """Answers every chat with `body`, framed right or broken off."""

    def __init__(self, body, whole=True, status="200 OK"):
        self.body, self.whole, self.status = body, whole, status

    async def serve(self, reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            await reader.read(1 << 16)
            writer.write(f"HTTP/1.1 {self.status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            writer.write(b"%x\r\n%s\r\n" % (len(self.body), self.body) + (b"0\r\n\r\n" if self.whole else b""))
            await writer.drain()
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_):
        self.server.close()


def stream(*events):
    return "".join(f"data: {event}\n\n" for event in events).encode()


class WholePath(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.proxy = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "proxy.py"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        self.proxy_port = int(await self.proxy.stdout.readline())

    async def asyncTearDown(self):
        self.proxy.stdin.close()
        await self.proxy.wait()

    async def ending(self, fake, plan=None, ending=False):
        """How the load judges one question to a server that answers so."""
        wrongs = []
        plan = plan or Plan()

        async def kind(load, server, plan, dice):
            reader = Chat([Tally.of("say", 7, 0, 2)], 50)
            return await asking.ask(load, server, plan, asking.CHAT, b"{}", reader, True)
        async with fake as port:
            fields_of = {"name": "x", "port": port, "grpc": 0, "generation": 1}
            load = load_module.Load({"seed": 1, "proxy": self.proxy_port, "pace": 1, "servers": [fields_of]})
            load.wrong = lambda *what: wrongs.append(what[-1])
            if ending:
                load.servers["x"].ending_at = 0
            try:
                how = await load.attempt(kind, load.servers["x"], plan, random.Random(1), 0)
            except load_module.Retry:
                how = "retry"
        return wrongs[0] if wrongs else how

    GOOD = stream(chunk("7b0 "), chunk("7b1 "), chunk(finish="stop"), "[DONE]")
    ERROR = stream(chunk("7b0 "), json.dumps({"error": {"message": "stopping"}}))

    async def test_every_ending_has_its_name(self):
        self.assertEqual(await self.ending(FakeServer(self.GOOD)), "whole")
        self.assertIn("should be", await self.ending(FakeServer(self.GOOD.replace(b"7b1", b"7b2"))))
        self.assertIn("the connection ended", await self.ending(FakeServer(self.GOOD[:150], whole=False)))
        self.assertIn("the connection ended", await self.ending(FakeServer(self.GOOD[:150], whole=False), ending=True))
        self.assertIn("before its answer did", await self.ending(FakeServer(stream(chunk("7b0 ")))))
        self.assertIn("an error event", await self.ending(FakeServer(self.ERROR)))
        self.assertEqual(await self.ending(FakeServer(self.ERROR), ending=True), "error event")
        self.assertEqual(await self.ending(FakeServer(self.GOOD), Plan(leave_after=1)), "left by us")
        good_error = b'{"error":{"message":"no"}}'
        self.assertIn("500", await self.ending(FakeServer(good_error, status="500 Oh")))
        self.assertIn("without Retry-After", await self.ending(FakeServer(good_error, status="503 No"), ending=True))

    async def test_the_network_does_what_was_wished(self):
        for faults in ({"down": 1}, {"up": 1}, {"stall_at": 20, "stall": 0.1}, {"down": 9, "pause": 0.001, "pieces": 5}):
            self.assertEqual(await self.ending(FakeServer(self.GOOD), Plan(faults=faults)), "whole", faults)
        for how in ("reset", "truncate"):
            for faults in ({"cut_at": 0}, {"cut_at": 100}, {"cut_up_at": 30}):
                plan = Plan(faults={**faults, "how": how})
                self.assertEqual(await self.ending(FakeServer(self.GOOD), plan), "cut by the proxy", plan)

    async def test_a_cut_is_exact(self):
        async with FakeServer(self.GOOD) as port:
            link = await Connection.open(port, self.proxy_port, {"cut_at": 61, "how": "truncate"})
            await link.send(Connection.request("POST", "/", b"x"))
            self.assertEqual(len(await link.reader.read()), 61)
            link.close()

    async def test_both_sides_may_fail_at_once(self):
        class Gone:
            """A reader and a writer of a connection that has been reset."""
            transport = unittest.mock.Mock()

            async def read(self, count):
                raise ConnectionResetError("gone")

            def get_extra_info(self, name):
                sock = socket.socket()
                sock.close()
                return sock

            def close(self):
                pass
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
        for how in ("reset", "truncate"):
            with contextlib.suppress(OSError):
                await proxy.Link({"how": how}, (Gone(), Gone()), (Gone(), Gone())).run()
        gc.collect()
        await asyncio.sleep(0)
        self.assertEqual(complaints, [])

    async def test_nobody_there(self):
        load = load_module.Load({"seed": 1, "proxy": self.proxy_port, "pace": 1,
                                 "servers": [{"name": "x", "port": 1, "grpc": 1, "generation": 1}]})
        with self.assertRaises(Cut):
            await kinds.chat(load, load.servers["x"], Plan(), random.Random(1))

    async def test_questions_fit_the_context(self):
        for seed in range(2000):
            question = Question.draw(random.Random(seed), 99_999)
            self.assertLess(question.tokens_max + 4 * len(question.prompt.split(" ")), 8192 - 600)
        with self.assertRaises(Left):
            asking.leave(type("Link", (), {"close": lambda self, reset: None})(), Plan())


if __name__ == "__main__":
    unittest.main()

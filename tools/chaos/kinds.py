"""The kinds of questions: each asks one server one thing, reads the answer to its end or leaves, and returns
how it ended. What is not as it must be raises Wrong; a connection that ends early raises Cut.
"""
import base64
import json
import random
import struct
import time

import unruly
from answers import Chat, Messages, Reader, Responses, finish_of, need
from asking import CHAT, MESSAGES, RESPONSES, TEXT, ask, ask_over, finish, leave, refused
from box import box
from pattern import Wrong
from questions import Plan, Question
from wire import Connection, Cut, GrpcCall, field, fields


# ---- answers of the script

async def chat(load, server, plan, dice):
    question, stream = Question.draw(dice, load.number()), dice.random() < 0.8
    if dice.random() < 0.1 and question.second < 30:
        question.choices = dice.randrange(2, 4)
    reader = Chat(question.tallies(), question.tokens_max, question.count_ids)
    return await ask(load, server, plan, CHAT, question.chat(stream), reader, stream)


async def completion(load, server, plan, dice):
    question, stream = Question.draw(dice, load.number(), ("text",)), dice.random() < 0.8
    if dice.random() < 0.1 and question.second < 30:
        question.choices = dice.randrange(2, 4)
    reader = Chat(question.tallies(), question.tokens_max, question.count_ids)
    return await ask(load, server, plan, TEXT, question.completion(stream), reader, stream)


async def message(load, server, plan, dice):
    question, stream = Question.draw(dice, load.number()), dice.random() < 0.8
    question.count_ids = False
    reader = Messages(question.tallies(), question.tokens_max)
    return await ask(load, server, plan, MESSAGES, question.message(stream), reader, stream)


async def response(load, server, plan, dice):
    """Stored, asked for again, gone on from and deleted, if it is whole."""
    question, stream = Question.draw(dice, load.number()), dice.random() < 0.8
    question.count_ids = False
    reader = Responses(question.tallies(), question.tokens_max)
    body = json.dumps(question.response(stream)).encode()
    ended = await ask(load, server, plan, RESPONSES, body, reader, stream)
    if ended != "whole" or server.ending or dice.random() < 0.5:
        if ended == "whole" and len(load.kept[server.name]) < 50:
            load.kept[server.name].append((reader.id, question))
        return ended
    path = f"{RESPONSES}/{reader.id}"
    again = Responses(question.tallies(), question.tokens_max)
    async with load.link(server, Plan()) as link:
        await link.send(Connection.request("GET", path))
        status, heads = await link.head()
        stored = await link.body(heads)
        if server.ending:
            return ended
        need(status == 200, f"a stored response: {status} {stored[:200]!r}")
        again.whole(stored)
        again.check()
        follow = Question.draw(dice, load.number(), brief=True)
        follow.count_ids = False
        reader = Responses(follow.tallies(), follow.tokens_max)
        body = json.dumps(follow.response(True, previous_response_id=reader.id or again.id)).encode()
        await ask_over(link, server, Plan(), RESPONSES, body, reader, True)
        link.begun, link.sent_at = False, float("inf")
        await link.send(Connection.request("DELETE", path))
        status, heads = await link.head()
        body = await link.body(heads)
        need(status == 200 or server.ending, f"a deletion: {status} {body[:200]!r}")
    return "whole, stored"


async def remembered(load, server, plan, dice):
    """A response stored a while ago, perhaps by a process that has been killed since: whole, or not there."""
    kept = load.kept[server.name]
    if not kept:
        return await response(load, server, plan, dice)
    name, question = kept.pop(dice.randrange(len(kept)))
    reader = Responses(question.tallies(), question.tokens_max)
    async with load.link(server, Plan()) as link:
        link.sent_at = time.monotonic()
        await link.send(Connection.request("GET", f"{RESPONSES}/{name}"))
        status, heads = await link.head()
        stored = await link.body(heads)
    if server.ending and status == 503:
        return "refused with 503"
    need(status in (200, 404), f"a response of long ago: {status} {stored[:200]!r}")
    if status == 404:
        return "forgotten"
    reader.whole(stored)
    reader.check()
    return "whole"


async def tool_loop(load, server, plan, dice):
    """A call, its result, and an answer that finds the turn as it was sampled."""
    first = Question.draw(dice, load.number(), ("call",), brief=True)
    first.tokens_max, first.count_ids = 1500, False
    reader = Chat(first.tallies(), first.tokens_max)
    body = first.chat(False)
    async with load.link(server, Plan()) as link:
        if await ask_over(link, server, Plan(), CHAT, body, reader, False) != "whole":
            return "error event"
        then = Question.draw(dice, load.number(), ("say",))
        call = {"id": "call_1", "type": "function",
                "function": {"name": "note", "arguments": reader.tallies[0].expected["call"]}}
        messages = json.loads(body)["messages"] + [{"role": "assistant", "content": None, "tool_calls": [call]},
                                                   {"role": "tool", "tool_call_id": "call_1", "content": then.prompt}]
        follow = {**json.loads(then.chat(True)), "messages": messages, "tools": json.loads(body)["tools"]}
        reader = Chat(then.tallies(), then.tokens_max, then.count_ids)
        return await ask_over(link, server, plan if plan.faults is None else Plan(), CHAT, json.dumps(follow).encode(),
                              reader, True)


async def kept_alive(load, server, plan, dice):
    """Several questions on one connection, half of the time all sent before the first is answered."""
    questions = [Question.draw(dice, load.number(), ("say", "think")) for _ in range(dice.randrange(2, 5))]
    streams = [dice.random() < 0.5 for _ in questions]
    readers = [Chat(q.tallies(), q.tokens_max, q.count_ids) for q in questions]
    bodies = [q.chat(stream) for q, stream in zip(questions, streams)]
    plan.leave_after, plan.leave_by, plan.deadline_ms = None, "close", None
    async with load.link(server, plan) as link:
        if dice.random() < 0.5:
            for body, reader, stream in zip(bodies, readers, streams):
                await ask_over(link, server, plan, CHAT, body, reader, stream)
            return "whole"
        await link.send(b"".join(Connection.request("POST", CHAT, body) for body in bodies))
        for reader, stream in zip(readers, streams):
            status, heads = await link.head()
            if status != 200:
                refused(server, plan, status, heads, await link.body(heads))
            if stream:
                async for name, data in link.events(heads):
                    reader.event(name, data)
            else:
                reader.whole(await link.body(heads))
            finish(server, plan, reader)
        return "whole"


async def socket(load, server, plan, dice):
    """Turns over one WebSocket, some of them cancelled, some left."""
    plan.deadline_ms = None
    async with load.link(server, plan) as link:
        status, heads = await link.upgrade(RESPONSES)
        if status != 101:
            refused(server, plan, status, heads, await link.body(heads))
        last, link.late_cancels = None, 0
        for _ in range(dice.randrange(1, 4)):
            question = Question.draw(dice, load.number(), brief=True)
            question.count_ids = False
            more = {"store": False}
            if last and dice.random() < 0.5:
                more["previous_response_id"] = last
            cancel_at = dice.randrange(40) if dice.random() < 0.2 else None
            reader = Responses(question.tallies(), question.tokens_max)
            link.begun, link.sent_at = False, time.monotonic()
            await link.send_frame(json.dumps({"type": "response.create", **question.response(None, **more)}).encode())
            ended = await socket_turn(link, server, plan, reader, cancel_at)
            if ended != "whole":
                return ended
            last = reader.id if reader.status == "completed" else None
        await link.send_frame(b"\x03\xe8", 8)
        opcode, payload = await next_frame(link)
        need(opcode == 8, f"words instead of goodbye: {payload[:200]!r}")
        return "whole"


async def next_frame(link):
    """A cancel that came after the end is told, whenever that is."""
    opcode, payload = await link.frame()
    if opcode == 1 and link.late_cancels > 0 and b"no response is being made" in payload:
        link.late_cancels -= 1
        return await next_frame(link)
    return opcode, payload


async def socket_turn(link, server, plan, reader, cancel_at):
    count = 0
    while not reader.done and reader.error is None:
        opcode, payload = await next_frame(link)
        if opcode == 8:
            raise Cut(f"closed with {payload[:2].hex()} {payload[2:80]!r}")
        link.begun = True
        reader.event("", payload.decode())
        count += 1
        if count == cancel_at:
            await link.send_frame(b'{"type":"response.cancel"}')
            link.late_cancels += 1
        if plan.leave_after is not None and count > plan.leave_after:
            leave(link, plan)
    if reader.status == "cancelled":
        link.late_cancels -= 1  # it came in time
    return finish(server, plan, reader)


async def grpc(load, server, plan, dice):
    question = Question.draw(dice, load.number(), ("say", "think"))
    tally = question.tallies()[0]
    sampling = field(10, question.tokens_max) + (field(12, question.stop) if question.stop else b"")
    user = field(1, "user") + field(2, question.prompt)
    body = field(4, field(1, user)) + field(5, sampling)
    async with load.link(server, plan, grpc=True) as link:
        call = GrpcCall(link)
        link.sent_at = time.monotonic()
        await call.start("Generate", body, f"{plan.deadline_ms}m" if plan.deadline_ms else None)
        count, used = 0, None
        async for data in call.messages():
            link.begun = True
            used = grpc_chunk(data, tally) or used
            count += 1
            if plan.leave_after is not None and count > plan.leave_after:
                if plan.leave_by == "half":
                    await call.cancel()
                leave(link, plan)
        return grpc_end(server, plan, call, question, tally, used)


def grpc_chunk(data, tally):
    used = None
    for number, value in fields(data):
        if number == 1:
            tally.tokens += sum(byte < 128 for byte in value) if isinstance(value, bytes) else 1
        elif number == 2:
            tally.add("content", value.decode())
        elif number == 3:
            tally.add("reasoning", value.decode())
        elif number == 7:
            used = dict(fields(value)).get(3, 0)
    for number, value in fields(data):
        if number == 6 and value:
            tally.end(finish_of(value.decode()))
    return used


def grpc_end(server, plan, call, question, tally, used):
    if call.status == 0:
        tally.whole(question.tokens_max, used)
        need(tally.tokens == used, f"{tally.tokens} tokens, but usage says {used}")
        return "whole"
    if call.status == 4 and plan.deadline_ms:
        return "deadline"
    if call.status in (8, 14) and (server.ending or call.status == 8):
        return f"refused with status {call.status}"
    if call.status == 13 and server.fails:
        return "failed step"
    raise Wrong(f"status {call.status}: {call.message}")


# ---- embeddings and small ones

TEXTS = [f"text {i} " + "of some length " * (i * 7 % 40) for i in range(12)]


async def embeddings(load, server, plan, dice):
    """Any mixture of texts: each has one vector, whatever it was computed beside."""
    if plan.deadline_ms:
        plan.deadline_ms = None
    picked = [dice.randrange(len(TEXTS)) for _ in range(dice.randrange(1, 20))]
    body = {"input": [TEXTS[i] for i in picked], "encoding_format": dice.choice(["float", "base64"])}

    class Vectors(Reader):
        def whole(self, body):
            data = json.loads(body)["data"]
            need([one["index"] for one in data] == list(range(len(picked))), "vectors are missing")
            for text, one in zip(picked, data):
                vector = one["embedding"]
                if isinstance(vector, str):
                    raw = base64.b64decode(vector)
                    vector = struct.unpack(f"<{len(raw) // 4}f", raw)
                short = tuple(struct.unpack("f", struct.pack("f", value))[0] for value in vector)
                known = load.vectors.setdefault((server.box, text), short)
                off = max(abs(a - b) for a, b in zip(known, short))
                need(len(known) == len(short) and off < 1e-6, f"another vector of text {text}, off by {off}")
            self.done = True

    return await ask(load, server, plan, "/v1/embeddings", json.dumps(body).encode(), Vectors([], 0), False)


async def small(load, server, plan, dice):
    """What is answered without the engine, or with its prompt alone."""
    plan.leave_after, plan.leave_by = None, "close"
    text = dice.choice(TEXTS) + " \U0001F600 été"
    async with load.link(server, plan) as link:
        async def fetch(method, path, body=None):
            await link.send(Connection.request(method, path, None if body is None else json.dumps(body).encode()))
            status, heads = await link.head()
            data = await link.body(heads)
            if status != 200:
                refused(server, plan, status, heads, data)
            return json.loads(data)
        what = dice.randrange(4)
        if what == 0:
            tokens = (await fetch("POST", "/tokenize", {"prompt": text}))["tokens"]
            back = (await fetch("POST", "/detokenize", {"tokens": tokens}))["prompt"]
            need(back == text, f"tokens of {text[:50]!r} say {back[:50]!r}")
        elif what == 1:
            need((await fetch("GET", "/v1/models"))["data"], "no models")
        elif what == 2:
            asked = {"messages": [{"role": "user", "content": text}]}
            rendered = await fetch("POST", CHAT + "/render", asked)
            need(text in rendered["prompt"], "a prompt without its text")
        else:
            asked = {"model": "pelton-box", "messages": [{"role": "user", "content": text}]}
            need((await fetch("POST", MESSAGES + "/count_tokens", asked))["input_tokens"] > 5, "no tokens")
    return "whole"


KINDS = {chat: 30, completion: 14, message: 10, response: 10, remembered: 3, tool_loop: 4, kept_alive: 6, socket: 10, grpc: 10,
         embeddings: 6, small: 5, unruly.deaf: 3,
         unruly.malformed: 10, unruly.garbage: 4, unruly.gone_at_once: 4}
BOX_KINDS = {box: 30, embeddings: 2, unruly.malformed: 1, unruly.gone_at_once: 1}


def draw(dice: random.Random, is_box):
    kinds = BOX_KINDS if is_box else KINDS
    return dice.choices(list(kinds), weights=list(kinds.values()))[0]

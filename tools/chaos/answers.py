"""Answers of each protocol, streamed and whole, read into tallies.

A reader is fed events until `done`; `error` is what the server told instead of an end.
"""
import json

from pattern import TOOL, Wrong

FINISHES = {"stop": "stop", "length": "length", "tool_calls": "call", "end_turn": "stop", "max_tokens": "length",
            "tool_use": "call", "stop_sequence": "stop"}


def finish_of(name):
    if name not in FINISHES:
        raise Wrong(f"finish_reason {name!r}")
    return FINISHES[name]


def need(truth, what):
    if not truth:
        raise Wrong(what)


class Reader:
    """`count_ids`: the request had return_token_ids."""

    def __init__(self, tallies, tokens_max, count_ids=False):
        self.tallies, self.tokens_max, self.count_ids = tallies, tokens_max, count_ids
        self.done, self.error, self.used, self.id = False, None, None, None

    def check(self):
        """Once `done`."""
        each = self.used if len(self.tallies) == 1 else None
        for tally in self.tallies:
            tally.whole(self.tokens_max, each)
        if self.count_ids and self.used is not None:
            told = sum(tally.tokens for tally in self.tallies)
            need(told == self.used, f"{told} token ids, but usage says {self.used}")

    def fail(self, error):
        need(isinstance(error, dict) and error.get("message"), f"an error without words: {error}")
        self.error = error


class Chat(Reader):
    def event(self, _, data):
        need(not self.done and self.error is None, "an event after the end")
        if data == "[DONE]":
            self.done = True
            return
        chunk = json.loads(data)
        if "error" in chunk:
            return self.fail(chunk["error"])
        self.same_id(chunk)
        if chunk.get("usage"):
            self.used = chunk["usage"]["completion_tokens"]
        for choice in chunk["choices"]:
            tally = self.tallies[choice["index"]]
            self.take(tally, choice.get("delta", choice))
            tally.tokens += len(choice.get("token_ids") or ())
            if choice.get("finish_reason"):
                tally.end(finish_of(choice["finish_reason"]))

    def same_id(self, chunk):
        need(self.id in (None, chunk["id"]), f"id {chunk['id']}, was {self.id}")
        self.id = chunk["id"]

    def take(self, tally, said):
        tally.add("reasoning", said.get("reasoning_content"))
        tally.add("content", said.get("content") or said.get("text"))
        for call in said.get("tool_calls") or ():
            if call["function"].get("name"):
                need(call["function"]["name"] == TOOL, f"a call of {call}")
                tally.calls += 1
            tally.add("call", call["function"].get("arguments"))

    def whole(self, body):
        answer = json.loads(body)
        self.used = answer["usage"]["completion_tokens"]
        need(len(answer["choices"]) == len(self.tallies), "another number of choices")
        for choice in answer["choices"]:
            tally = self.tallies[choice["index"]]
            self.take(tally, choice.get("message", choice))
            tally.tokens += len(choice.get("token_ids") or ())
            tally.end(finish_of(choice["finish_reason"]))
        self.done = True


class Messages(Reader):
    def event(self, name, data):
        need(not self.done and self.error is None, "an event after the end")
        event = json.loads(data)
        need(event["type"] == name, f"{name} says {event['type']}")
        tally = self.tallies[0]
        if name == "error":
            self.fail(event["error"])
        elif name == "content_block_start" and event["content_block"]["type"] == "tool_use":
            need(event["content_block"]["name"] == TOOL, "a call of another tool")
            tally.calls += 1
        elif name == "content_block_delta":
            delta = event["delta"]
            tally.add("content", delta.get("text"))
            tally.add("reasoning", delta.get("thinking"))
            tally.add("call", delta.get("partial_json"))
        elif name == "message_delta":
            self.used = event["usage"]["output_tokens"]
            tally.end(finish_of(event["delta"]["stop_reason"]))
        elif name == "message_stop":
            self.done = True

    def whole(self, body):
        answer, tally = json.loads(body), self.tallies[0]
        for block in answer["content"]:
            tally.add("content", block.get("text"))
            tally.add("reasoning", block.get("thinking"))
            if block["type"] == "tool_use":
                need(block["name"] == TOOL, "a call of another tool")
                tally.calls += 1
                # One that was cut off before its first character has an input too, as there must be one.
                cut_off = not block["input"] and answer["stop_reason"] == "max_tokens"
                said = json.dumps(block["input"], separators=(",", ":"))
                tally.add("call", "" if cut_off else block["input"].get("raw_input") or said)
        self.used = answer["usage"]["output_tokens"]
        tally.end(finish_of(answer["stop_reason"]))
        self.done = True


class Responses(Reader):
    """Of a stream of events, or of the messages of a WebSocket."""

    number = 0
    status = None

    def event(self, name, data):
        need(not self.done and self.error is None, "an event after the end")
        event = json.loads(data)
        kind = event["type"]
        if kind == "error":
            return self.fail(event["error"])
        need(name in ("", kind), f"{name} says {kind}")
        need(event["sequence_number"] == self.number, f"event {event['sequence_number']}, not {self.number}")
        self.number += 1
        tally = self.tallies[0]
        if kind == "response.output_text.delta":
            tally.add("content", event["delta"])
        elif kind == "response.reasoning_text.delta":
            tally.add("reasoning", event["delta"])
        elif kind == "response.function_call_arguments.delta":
            tally.add("call", event["delta"])
        elif kind == "response.output_item.added" and event["item"]["type"] == "function_call":
            need(event["item"]["name"] == TOOL, "a call of another tool")
            tally.calls += 1
        elif kind == "response.created":
            self.id = event["response"]["id"]
        elif kind == "response.failed":
            self.fail(event["response"]["error"])
        elif kind in ("response.completed", "response.incomplete"):
            self.close(event["response"])

    def close(self, response):
        need(self.id in (None, response["id"]), "another response")
        self.id, self.status, self.done = response["id"], response["status"], True
        self.used = response["usage"]["output_tokens"]
        kinds = [item["type"] for item in response["output"]]
        need(response["status"] in ("completed", "incomplete", "cancelled"), f"status {response['status']}")
        if response["status"] == "completed":
            self.tallies[0].end("call" if "function_call" in kinds else "stop")
        elif response["status"] == "incomplete":
            reason = response["incomplete_details"]["reason"]
            need(reason == "max_output_tokens", f"incomplete by {reason}")
            self.tallies[0].end("length")

    def check(self):
        if self.status != "cancelled":
            super().check()

    def whole(self, body):
        response, tally = json.loads(body), self.tallies[0]
        for item in response["output"]:
            text = "".join(part["text"] for part in item.get("content") or ())
            tally.add("reasoning" if item["type"] == "reasoning" else "content", text)
            if item["type"] == "function_call":
                need(item["name"] == TOOL, "a call of another tool")
                tally.calls += 1
                tally.add("call", item["arguments"])
        self.close(response)

"""What streams must say: the model's script for `pelton serve --executor modelled:FILE`, and the checker of it.

A question asks "count for ID N M", and the answer is "IDa0 IDa1 … IDa(N-1) " and, in its second part,
"IDb0 … IDb(M-1) ": every few tokens say whose they are and which. So a token that is wrong, lost, doubled or
another's shows at the character where it happens, while the stream still runs.
"""
import json

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
          "additionalProperties": False}
TOOL = "note"


def script(**options):
    analysis = ["<|channel|>analysis<|message|>", {"counted": 1}, "<|end|><|start|>assistant"]
    return json.dumps({**options, "rules": [
        {"when": "", "then": "<|channel|>final<|message|>nothing was asked<|return|>"},
        {"when": "say for ", "then": ["<|channel|>final<|message|>", {"counted": 2}, "<|return|>"]},
        {"when": "think for ", "then": [*analysis, "<|channel|>final<|message|>", {"counted": 2}, "<|return|>"]},
        {"when": "call for ", "then": [
            *analysis, f"<|channel|>commentary to=functions.{TOOL} <|constrain|>json<|message|>" '{"text":"',
            {"counted": 2}, '"}<|call|>']},
        {"when": "json for ", "then": [
            *analysis, '<|channel|>final<|message|>{"text":"', {"counted": 2}, '"}<|return|>']},
        {"when": "text for ", "then": [{"counted": 2}, "<|return|>"]}]})


def items(number, letter, count):
    return "".join(f"{number}{letter}{i} " for i in range(count))


class Wrong(Exception):
    """What must never be."""


class Tally:
    """One answer as it comes, against what it must be."""

    def __init__(self, reasoning, content, call):
        self.expected = {"reasoning": reasoning, "content": content, "call": call}
        self.seen = dict.fromkeys(self.expected, 0)
        self.finish, self.held_back = None, 0
        self.tokens = 0    # told by their ids
        self.calls = 0

    @classmethod
    def of(cls, way, number, first, second):
        """The answer to "`way` for `number` `first` `second`"."""
        reasoning = items(number, "a", first) if way in ("think", "call", "json") else ""
        said = items(number, "b", second)
        if way == "call":
            return cls(reasoning, "", '{"text":"' + said + '"}')
        return cls(reasoning, '{"text":"' + said + '"}' if way == "json" else said, "")

    def stop_before(self, content, stop):
        """What may be the stop string's beginning is shown only if the answer is cut off there."""
        self.expected["content"] = content + stop[:-1]
        self.held_back = len(stop) - 1

    def add(self, channel, text):
        if not text:
            return
        if self.finish is not None:
            raise Wrong(f"{channel} after the end: {text[:80]!r}")
        at, want = self.seen[channel], self.expected[channel]
        if want.startswith(text, at):
            self.seen[channel] = at + len(text)
            return
        off = next((i for i, c in enumerate(text) if want[at + i:at + i + 1] != c), len(text))
        raise Wrong(f"{channel}, character {at + off}: {text[max(0, off - 40):off + 40]!r} where "
                    f"{want[max(0, at + off - 40):at + off + 40]!r} should be")

    def end(self, finish):
        if self.finish is not None:
            raise Wrong("two ends")
        self.finish = finish

    def whole(self, tokens_max=None, used=None):
        """After an answer that says it is whole."""
        missing = {channel: len(want) - self.seen[channel] for channel, want in self.expected.items()}
        missing["content"] -= self.held_back
        if self.finish == "length":
            if used is not None and tokens_max is not None and used != tokens_max:
                raise Wrong(f"cut at {used} tokens, not at {tokens_max}")
            return
        if self.finish != ("call" if self.expected["call"] else "stop"):
            raise Wrong(f"ended by {self.finish!r}")
        if any(missing.values()):
            raise Wrong(f"ended by {self.finish!r} with characters missing (or too many): {missing}")
        if self.calls != bool(self.expected["call"]):
            raise Wrong(f"{self.calls} calls")

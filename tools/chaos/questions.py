"""What one client does: a question, how its answer is read, and what befalls it on the way."""
import dataclasses
import json

from pattern import SCHEMA, TOOL, Tally, items

WORDS = "water jet bucket runner nozzle wheel head flow speed power été 水 \U0001F600 {} [] \\ \" <|end|>".split()
TOOLS = [{"type": "function", "function": {"name": TOOL, "description": "Keeps a text.", "parameters": SCHEMA}}]
PROMPT_WORDS_MAX = 900  # a word is up to four tokens of the model in the box


@dataclasses.dataclass
class Plan:
    """What shall happen to a connection. The checker holds it against what did."""
    faults: dict | None = None       # for the proxy
    leave_after: int | None = None  # events read before we go
    leave_by: str = "close"         # close, reset or half (close the sending half and stay)
    slow: float = 0.0               # pause between pieces, with small buffers
    deadline_ms: int | None = None

    @property
    def cut(self):
        return self.faults is not None and ("cut_at" in self.faults or "cut_up_at" in self.faults)

    @classmethod
    def draw(cls, dice):
        plan, what = cls(), dice.random()
        if what < 0.35:
            return plan
        if what < 0.50:
            plan.leave_after = int(2 ** dice.uniform(0, 7)) - 1
            plan.leave_by = dice.choice(["close", "reset", "reset"])
        elif what < 0.55:
            plan.leave_by = "half"
        elif what < 0.63:
            plan.slow = dice.choice([0.001, 0.01, 0.05])
        elif what < 0.67:
            plan.deadline_ms = int(2 ** dice.uniform(0, 13))
        else:
            plan.faults = network(dice)
        return plan


def network(dice):
    at = int(2 ** dice.uniform(0, 17))
    how = {"how": dice.choice(["reset", "truncate"])}
    what = dice.random()
    if what < 0.2:
        return {"down": 1, "pieces": 3000}
    if what < 0.3:
        return {"up": 1, "pieces": 3000}
    if what < 0.45:
        return {"down": dice.choice([7, 100, 1400]), "up": 64, "pause": 0.005, "pieces": 300}
    if what < 0.65:
        return {"stall_at": at, "stall": dice.choice([0.1, 1, 3])}
    if what < 0.9:
        return {"cut_at": at, **how}
    return {"cut_up_at": int(2 ** dice.uniform(0, 10)), **how}


@dataclasses.dataclass
class Question:
    number: int
    way: str         # say, think, call, json; text
    prompt: str
    first: int
    second: int
    tokens_max: int
    stop: str | None = None
    choices: int = 1
    count_ids: bool = False

    @classmethod
    def draw(cls, dice, number, ways=("say", "think", "call", "json"), brief=False):
        """`brief`: several of these fit one conversation."""
        way = dice.choice(ways)
        size = len(f"{number}a100 ")
        room = int(2 ** dice.uniform(3, 9 if brief else 10.2)) // size
        first = dice.randrange(room + 1) if way in ("think", "call", "json") else 0
        second = max(1, room - first)
        long = not brief and dice.random() < 0.1
        filler = dice.choices(WORDS, k=PROMPT_WORDS_MAX if long else int(2 ** dice.uniform(0, 7)))
        prompt = " ".join(filler) + f" {way} for {number} {first} {second} "
        enough = (first + second) * size + 120
        tokens_max = enough if dice.random() < 0.85 else dice.randrange(1, enough)
        question = cls(number, way, prompt, first, second, tokens_max, count_ids=dice.random() < 0.3)
        if way in ("say", "text") and dice.random() < 0.1:
            question.stop = f"{number}b{dice.randrange(second)} "
        return question

    def tallies(self):
        tallies = [Tally.of(self.way, self.number, self.first, self.second) for _ in range(self.choices)]
        if self.stop:
            at = int(self.stop.split("b")[1])
            for tally in tallies:
                tally.stop_before(items(self.number, "b", at), self.stop)
        return tallies

    def common(self, stream, tokens_name):
        body = {tokens_name: self.tokens_max, "stream": stream}
        if self.count_ids:
            body["return_token_ids"] = True
        if self.stop:
            body["stop"] = [self.stop]
        return body

    def chat(self, stream):
        body = {"messages": [{"role": "user", "content": self.prompt}], "n": self.choices,
                **self.common(stream, "max_completion_tokens")}
        if stream:
            body["stream_options"] = {"include_usage": True}
        if self.way == "call":
            body["tools"] = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": self.number % 2 == 0}}]
        if self.way == "json":
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "t", "schema": SCHEMA}}
        return json.dumps(body).encode()

    def completion(self, stream):
        body = {"prompt": self.prompt, "n": self.choices, **self.common(stream, "max_tokens")}
        if stream:
            body["stream_options"] = {"include_usage": True}
        return json.dumps(body).encode()

    def message(self, stream):
        body = {"model": "pelton-box", "messages": [{"role": "user", "content": self.prompt}],
                "max_tokens": self.tokens_max, "stream": stream, "thinking": {"type": "adaptive"}}
        if self.stop:
            body["stop_sequences"] = [self.stop]
        if self.way == "call":
            body["tools"] = [{"name": TOOL, "description": "Keeps a text.", "input_schema": SCHEMA}]
        if self.way == "json":
            body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        return json.dumps(body).encode()

    def response(self, stream, **more):
        body = {"input": self.prompt, "max_output_tokens": self.tokens_max, **more}
        if stream is not None:
            body["stream"] = stream
        if self.stop:
            body["stop"] = [self.stop]
        if self.way == "call":
            body["tools"] = [{"type": "function", "name": TOOL, "parameters": SCHEMA}]
        if self.way == "json":
            body["text"] = {"format": {"type": "json_schema", "name": "t", "schema": SCHEMA}}
        return body

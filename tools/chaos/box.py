"""The model in the box: greedy, so each prompt has one answer, whatever else goes on."""
import json

from answers import Chat, need
from asking import CHAT, ask
from pattern import Tally
from questions import Plan

PROMPTS = ["What do you get for 39 + 57?", "What do you get for 28 + 87?", "What do you get for 14 + 72?",
           "I need a JSON object with name and city: Nora Fisher, a pilot, lives in Prague.",
           "I fly to Lisbon. How is the weather there?", "What is Pelton?", "Sort 5, 3 and 9.",
           "Who are you?", "What do you get for 91 - 45?", "Say hello to Anna."]


def box_body(prompt, stream):
    return json.dumps({"messages": [{"role": "user", "content": prompt}], "temperature": 0, "stream": stream,
                       "max_completion_tokens": 160}).encode()


class Reference(Chat):
    """Keeps what it reads."""

    def __init__(self):
        super().__init__([self], None)
        self.said, self.ended = {"reasoning": "", "content": "", "call": ""}, None

    def add(self, channel, text):
        self.said[channel] += text or ""

    def end(self, finish):
        self.ended = finish

    tokens = calls = 0

    def check(self):
        pass


async def ask_references(load, server):
    """Alone, twice: the second time with what the cache has of it."""
    for prompt in PROMPTS:
        answers = []
        for _ in range(2):
            reader = Reference()
            await ask(load, server, Plan(), CHAT, box_body(prompt, False), reader, False)
            answers.append((reader.said, reader.ended, reader.used))
        need(answers[0] == answers[1], f"asked twice alone, {prompt!r}: {answers}")
        load.references[prompt] = answers[0]


async def box(load, server, plan, dice):
    prompt, stream = dice.choice(PROMPTS), dice.random() < 0.8
    said, ended, _ = load.references[prompt]
    tally = Tally(said["reasoning"], said["content"], said["call"])
    reader = Chat([tally], 160)
    reader.check = lambda: need(
        tally.finish == ended and all(tally.seen[c] == len(said[c]) for c in said), f"{prompt!r}: not as when alone")
    return await ask(load, server, plan, CHAT, box_body(prompt, stream), reader, stream)

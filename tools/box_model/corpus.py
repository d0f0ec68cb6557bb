"""The mix of tasks. conversation_at(seed, split, index) is a pure function: same seed, same data."""
import random

import tasks as t
import tool_tasks as tt

MIX = [("pelton", 25, t.pelton), ("arithmetic", 22, t.arithmetic), ("json", 19, t.json_extraction),
       ("turns", 5, t.multi_turn), ("units", 3, t.units), ("sort", 3, t.sorting), ("unknown", 4, t.unknown),
       ("small talk", 2, t.small_talk), ("date", 1, t.date_question), ("repeat", 4, t.repeat), ("list", 3, t.word_list),
       ("tool", 20, tt.one_call), ("two calls", 4, tt.two_calls), ("no tool", 5, tt.no_tool),
       ("tools unused", 2, lambda r, s: tt.plain_with_tools(r, s, r.choice((t.pelton, t.arithmetic, t.small_talk))))]

# Training begins with these alone. In the whole mix, heads that copy would take ten times as long to form.
FIRST_LESSONS = 10000
LESSONS = [("repeat", 45, t.repeat), ("list", 20, t.word_list), ("arithmetic", 20, t.arithmetic),
           ("json", 15, t.json_extraction)]

# Later more copying again: in the whole mix it had become careless.
MORE_COPYING_FROM = 72000
MORE_COPYING = {"pelton": 27, "json": 17, "turns": 3, "repeat": 9, "list": 8, "tool": 22, "two calls": 5, "no tool": 6}
# Then more of what takes longest: questions in other words, and what no tool can do.
SLOW_ONES_FROM = 124000
SLOW_ONES = {"pelton": 33, "arithmetic": 15, "json": 20, "turns": 3, "sort": 5, "unknown": 5, "small talk": 4, "repeat": 7,
             "list": 7, "two calls": 5, "no tool": 8, "tools unused": 3}

# To finish: tools that are there should be called, not missed.
FINISH_FROM = 208000
FINISH = {"pelton": 50, "arithmetic": 12, "json": 21, "turns": 3, "units": 2, "sort": 3, "unknown": 8, "small talk": 6, "repeat": 5,
          "list": 5, "tool": 28, "two calls": 7, "no tool": 4, "tools unused": 3}


def mix_with(weights):
    return [(name, weights.get(name, weight), make) for name, weight, make in MIX]


COPYING_MIX, SLOW_MIX, LAST_MIX = mix_with(MORE_COPYING), mix_with(SLOW_ONES), mix_with(FINISH)


def mix_at(split, index):
    if split == "test":
        return MIX
    phases = [(FIRST_LESSONS, LESSONS), (MORE_COPYING_FROM, MIX), (SLOW_ONES_FROM, COPYING_MIX),
              (FINISH_FROM, SLOW_MIX)]
    return next((mix for end, mix in phases if index < end), LAST_MIX)


def conversation_at(seed, split, index):
    rng = random.Random("%d %s %d" % (seed, split, index))
    rng.made_up_share = 0.06 if split == "test" else 0.15 if index < SLOW_ONES_FROM else 0.25
    mix = mix_at(split, index)
    make = rng.choices([m for _, _, m in mix], [weight for _, weight, _ in mix])[0]
    return make(rng, split)

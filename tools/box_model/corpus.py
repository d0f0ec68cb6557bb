"""The mix of tasks. conversation_at(seed, split, index) is a pure function: same seed, same data."""
import random

import tasks as t
import tool_tasks as tt

MIX = [("pelton", 22, t.pelton), ("arithmetic", 22, t.arithmetic), ("json", 13, t.json_extraction),
       ("turns", 9, t.multi_turn), ("units", 4, t.units), ("sort", 4, t.sorting), ("unknown", 4, t.unknown),
       ("small talk", 2, t.small_talk), ("date", 1, t.date_question), ("tool", 18, tt.one_call),
       ("two calls", 4, tt.two_calls), ("no tool", 2, tt.no_tool),
       ("tools unused", 3, lambda r, s: tt.plain_with_tools(r, s, r.choice((t.pelton, t.arithmetic, t.small_talk))))]


def conversation_at(seed, split, index):
    rng = random.Random("%d %s %d" % (seed, split, index))
    make = rng.choices([m for _, _, m in MIX], [weight for _, weight, _ in MIX])[0]
    return make(rng, split)

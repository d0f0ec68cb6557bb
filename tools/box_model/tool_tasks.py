"""Conversations with tools: which of one to three to call, with which arguments, and what to make of
the results. Tools and parameters go by several names, so the model must read the declarations."""
import wordings as wd
import words as w
from tasks import by_effort, call, answer, conversation, history, user, EFFORTS
from harmony import compact


class Tool:
    """names: of the function; parameters: (names it may have, type, description);
    make: random values by position; asks: wordings; does: what it is good for; reply: result -> answer."""

    def __init__(self, names, description, parameters, make, asks, does, result, reply):
        self.names, self.description, self.parameters, self.make = names, description, parameters, make
        self.asks, self.does, self.result, self.reply = asks, does, result, reply


def time_of_day(r):
    return "%02d:%02d" % (r.randint(6, 22), r.choice((0, 15, 30, 45)))


TOOLS = [
    Tool(["get_weather", "weather", "current_weather", "forecast"], "Weather of a city.",
         [(["city", "location", "place"], "string", None)], lambda r: [w.city(r)],
         wd.WEATHER, "the weather in {0}", lambda r, v: {"sky": r.choice(w.WEATHER), "degrees": r.randint(-9, 35)},
         lambda v, x: "In %s it is %s, %d degrees." % (v[0], x["sky"], x["degrees"])),
    Tool(["get_time", "current_time", "clock", "local_time"], "Local time of a city.",
         [(["city", "place", "location"], "string", None)], lambda r: [w.city(r)],
         wd.CLOCK, "the time in {0}", lambda r, v: {"time": time_of_day(r)}, lambda v, x: "In %s it is %s." % (v[0], x["time"])),
    Tool(["send_message", "message", "send_text", "notify"], "Sends a message to someone.",
         [(["to", "recipient", "person"], "string", None), (["text", "body", "message"], "string", None)],
         lambda r: [w.first_name(r), r.choice(w.NOTES)],
         wd.MESSAGE, "a message to {0}", lambda r, v: {"sent": True}, lambda v, x: "I have sent the message to %s." % v[0]),
    Tool(["set_alarm", "alarm", "wake_up", "add_alarm"], "Sets an alarm.",
         [(["time", "at", "when"], "string", "HH:MM")], lambda r: [time_of_day(r)],
         wd.ALARM, "an alarm at {0}", lambda r, v: {"ok": True}, lambda v, x: "The alarm is set for %s." % v[0]),
    Tool(["stock_price", "get_stock", "quote", "share_price"], "Price of a stock.",
         [(["symbol", "ticker", "stock"], "string", None)], lambda r: [r.choice(w.SYMBOLS)],
         wd.STOCK, "the stock {0}", lambda r, v: {"price": r.randint(10, 990)}, lambda v, x: "%s stands at %d." % (v[0], x["price"])),
    Tool(["add_note", "note", "create_note", "save_note"], "Saves a note.",
         [(["text", "note", "content"], "string", None)], lambda r: [r.choice(w.NOTES)],
         wd.NOTE, "a note", lambda r, v: {"saved": True}, lambda v, x: "Noted: %s." % v[0]),
    Tool(["find_order", "get_order", "order_status", "lookup_order"], "Status of an order.",
         [(["order", "order_id", "number"], "integer", None)], lambda r: [r.randint(100, 9999)],
         wd.ORDER, "order {0}", lambda r, v: {"status": r.choice(["sent", "packed", "paid", "delivered", "cancelled"])},
         lambda v, x: "Order %d is %s." % (v[0], x["status"])),
    Tool(["play_song", "play", "play_music", "start_song"], "Plays a song.",
         [(["title", "song", "name"], "string", None)], lambda r: [r.choice(w.SONGS)],
         wd.SONG, "the song {0}", lambda r, v: {"playing": True}, lambda v, x: "Now playing %s." % v[0]),
    Tool(["book_table", "reserve_table", "reservation", "make_booking"], "Books a table.",
         [(["name", "guest"], "string", None), (["people", "guests", "seats"], "integer", None), (["time", "at"], "string", "HH:MM")],
         lambda r: [w.first_name(r), r.randint(2, 12), time_of_day(r)],
         wd.TABLE, "a table for {1} at {2} for {0}", lambda r, v: {"booked": True}, lambda v, x: "A table for %d is booked at %s." % (v[1], v[2])),
    Tool(["switch_light", "set_light", "light", "lamp"], "Switches the light of a room.",
         [(["room", "place"], "string", None), (["on", "state"], "boolean", None)],
         lambda r: [r.choice(w.ROOMS), r.random() < 0.5],
         wd.LIGHT, "the light in the {0}: {1}", lambda r, v: {"ok": True},
         lambda v, x: "The light in the %s is %s." % (v[0], "on" if v[1] else "off")),
    Tool(["convert_currency", "exchange", "convert_money", "currency"], "Converts money.",
         [(["amount", "value"], "integer", None), (["from", "source"], "string", None), (["to", "target"], "string", None)],
         lambda r: [r.randint(2, 990)] + r.sample(w.CURRENCIES, 2),
         wd.MONEY, "{0} {1} in {2}", lambda r, v: {"result": r.randint(2, 990)}, lambda v, x: "%d %s are %d %s." % (v[0], v[1], x["result"], v[2])),
    Tool(["search", "web_search", "find", "lookup"], "Searches the web.",
         [(["query", "q", "text"], "string", None)], lambda r: [r.choice(w.TOPICS)],
         wd.SEARCH, "{0}", lambda r, v: {"pages": r.randint(2, 99)}, lambda v, x: "I found %d pages about %s." % (x["pages"], v[0])),
    Tool(["translate", "translate_text", "translation"], "Translates a text.",
         [(["text", "phrase"], "string", None), (["language", "to", "target"], "string", None)],
         lambda r: [r.choice(w.NOTES), r.choice(w.LANGUAGES)],
         wd.TRANSLATE, "{1}", lambda r, v: {"text": w.made_up_word(r).lower()},
         lambda v, x: "In %s: %s." % (v[1], x["text"])),
]


class Declared:
    """A tool with its names chosen."""

    def __init__(self, rng, tool):
        self.tool, self.name, used = tool, rng.choice(tool.names), []
        for names, _, _ in tool.parameters:
            used.append(rng.choice([n for n in names if n not in used]))
        self.keys = used
        properties = {}
        for key, (_, kind, description) in zip(used, tool.parameters):
            properties[key] = {"type": kind}
            if description:
                properties[key]["description"] = description
        self.declaration = {"name": self.name, "description": tool.description,
                            "parameters": {"type": "object", "properties": properties, "required": list(used)}}

    def arguments(self, values):
        return dict(zip(self.keys, values))


def shown(values):
    return ["on" if v is True else "off" if v is False else v for v in values]


def declare(rng, count):
    return [Declared(rng, tool) for tool in rng.sample(TOOLS, count)]


def call_reasoning(effort, tool, values):
    does = tool.tool.does.format(*shown(values))
    return by_effort(effort, None, "Tool %s for %s." % (tool.name, does),
                     "The user wants %s. Tool %s can do it." % (does, tool.name))


def one_call(rng, split):
    """The call alone, or the call, its result and the answer."""
    effort, declared = rng.choice(EFFORTS), declare(rng, rng.choice((1, 1, 2, 2, 3)))
    chosen = rng.choice(declared)
    tool, values = chosen.tool, chosen.tool.make(rng)
    arguments = chosen.arguments(values)
    messages = [user(tool.asks.ask(rng, split).format(*shown(values))),
                call(chosen.name, arguments, call_reasoning(effort, chosen, values))]
    score = {"call": [chosen.name, arguments]}
    task = "tool call"
    answered = rng.random() < 0.35
    if answered:
        result = tool.result(rng, values)
        final = tool.reply(values, result)
        thought = by_effort(effort, None, "The tool answered.", "The tool answered. I can tell the user.")
        sent_back = rng.random() < 0.5
        if split == "test" or not sent_back:
            messages[1] = history(messages[1])
            if not sent_back:
                messages[1]["reasoning"] = None
            score, task = {"final": final}, "tool result"
        messages += [{"role": "tool", "name": chosen.name, "content": compact(result)}, answer(final, thought)]
    return conversation(rng, task, messages, score, [d.declaration for d in declared], effort=effort)


def two_calls(rng, split):
    """The same tool for two cities, one after the other."""
    effort, declared = rng.choice(EFFORTS), declare(rng, rng.choice((0, 1, 1)))
    chosen = Declared(rng, rng.choice(TOOLS[:2]))
    declared = [d for d in declared if d.tool not in TOOLS[:2]] + [chosen]
    rng.shuffle(declared)
    tool = chosen.tool
    cities = rng.sample(w.CITIES, 2)
    first = tool.asks.pick(rng, "train").format(cities[0])
    messages, finals = [user(wd.TWICE.ask(rng, split).format(first, cities[1]))], []
    for c in cities:
        result = tool.result(rng, [c])
        messages += [call(chosen.name, chosen.arguments([c]), call_reasoning(effort, chosen, [c])),
                     {"role": "tool", "name": chosen.name, "content": compact(result)}]
        finals.append(tool.reply([c], result))
    final = " ".join(finals)
    messages.append(answer(final, by_effort(effort, None, "The tool answered.", "The tool answered. I can tell the user.")))
    stage = rng.choice((0, 1, 2)) if split == "test" else rng.choice((0, 0, 1, 2))
    score = {"call": [chosen.name, chosen.arguments([cities[min(stage, 1)]])]} if stage < 2 else {"final": final}
    for i in range(2 * stage):
        messages[1 + i] = history(messages[1 + i])
        messages[1 + i].pop("reasoning", None)
    return conversation(rng, "tool call" if stage < 2 else "tool result", messages, score,
                        [d.declaration for d in declared], effort=effort)


NO_TOOL = "I have no tool for that."


def no_tool(rng, split):
    """The tool that is wanted is not there, or none is needed."""
    effort, tools = rng.choice(EFFORTS), rng.sample(TOOLS, rng.choice((2, 3)))
    missing = Declared(rng, tools[0])
    declared = [Declared(rng, t) for t in tools[1:]]
    values = missing.tool.make(rng)
    text = missing.tool.asks.ask(rng, split).format(*shown(values))
    reasoning = by_effort(effort, None, "No tool for %s." % missing.tool.does.format(*shown(values)),
                          "The user wants %s. No tool can do it." % missing.tool.does.format(*shown(values)))
    return conversation(rng, "no tool", [user(text), answer(NO_TOOL, reasoning)], {"final": NO_TOOL},
                        [d.declaration for d in declared], effort=effort)


def plain_with_tools(rng, split, plain):
    """A question that needs no tool, though there are some."""
    out = plain(rng, split)
    out["tools"] = [d.declaration for d in declare(rng, rng.choice((1, 2)))]
    return out

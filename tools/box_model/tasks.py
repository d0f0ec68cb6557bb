"""Generators of conversations, one per task. Each takes (rng, split) and returns a conversation:

    {task, effort, date, instructions, tools, messages, score, new_wording}

A message is {role, content | call, reasoning?, train?}; those with train are what the model learns to
say. `score` says how an answer is judged (score.py); new_wording, that a test uses wordings marked "!". split is "train" or "test": wordings that begin
with "!" exist only in test, and so do some operands and some expansions of questions (`is_test`).
"""
import zlib

import words as w
from facts import FACTS, SMALL_TALK, is_test, question
from harmony import compact

EFFORTS = ["low", "medium", "medium", "medium", "high"]
INSTRUCTIONS = ["You are a helpful assistant.", "You are a helpful assistant.", "Be brief.", "Answer briefly.",
                "Answer in English.", "You are a friendly assistant.", "Be polite.", "Help the user.",
                "You are Pelton's assistant.", "Answer the user's questions."]


def wording(rng, split, wordings):
    """Half of the tests use wordings that training never saw."""
    new = [x[1:] for x in wordings if x.startswith("!")]
    known = [x for x in wordings if not x.startswith("!")]
    if split == "test" and new and rng.random() < 0.5:
        rng.new_wording = True
        return rng.choice(new)
    return rng.choice(known)


def random_date(rng):
    return "%04d-%02d-%02d" % (rng.randint(2024, 2031), rng.randint(1, 12), rng.randint(1, 28))


def conversation(rng, task, messages, score, tools=(), effort=None):
    return {"task": task, "effort": effort or rng.choice(EFFORTS), "date": random_date(rng),
            "instructions": rng.choice(INSTRUCTIONS) if rng.random() < 0.12 else None,
            "tools": list(tools), "messages": messages, "score": score,
            "new_wording": getattr(rng, "new_wording", False)}


def user(text):
    return {"role": "user", "content": text}


def answer(content, reasoning=None):
    return {"role": "assistant", "content": content, "reasoning": reasoning, "train": True}


def call(name, arguments, reasoning=None):
    return {"role": "assistant", "call": (name, compact(arguments)), "reasoning": reasoning, "train": True}


def history(message):
    return {key: value for key, value in message.items() if key != "train"}


def by_effort(effort, low, medium, high):
    return {"low": low, "medium": medium, "high": high}[effort]


# --- questions about Pelton ---------------------------------------------------------------------

def ask(rng, split, fact):
    kind = "train" if split == "train" else rng.choice(("test", "new"))
    if kind == "new":
        rng.new_wording = True
    return question(rng, fact, kind)


def about_pelton(effort, fact):
    return by_effort(effort, None, "The user asks about %s." % fact.topic,
                     "The user asks about %s. I know this fact about Pelton." % fact.topic)


def pelton(rng, split):
    fact, effort = rng.choice(FACTS), rng.choice(EFFORTS)
    return conversation(rng, "pelton", [user(ask(rng, split, fact)), answer(fact.answer, about_pelton(effort, fact))],
                        {"final": fact.answer}, effort=effort)


def small_talk_messages(rng, split, effort):
    fact = rng.choice(SMALL_TALK)
    reasoning = by_effort(effort, None, "Small talk: %s." % fact.topic, "Small talk: %s. A short answer." % fact.topic)
    return [user(ask(rng, split, fact)), answer(fact.answer, reasoning)]


def small_talk(rng, split):
    effort = rng.choice(EFFORTS)
    messages = small_talk_messages(rng, split, effort)
    return conversation(rng, "small talk", messages, {"final": messages[-1]["content"]}, effort=effort)


UNKNOWN = ["What is {s}?", "Tell me about {s}.", "Explain {s}.", "Do you know {s}?", "What do you know about {s}?",
           "I want to learn about {s}.", "Who knows {s}?", "Can you tell me {s}?", "Please explain {s} to me.",
           "Give me some facts about {s}.", "How does {s} work?", "Write a poem about {s}.",
           "Write an essay about {s}.", "!Teach me about {s}.", "!What can you say about {s}?",
           "!Could you describe {s}?"]
NOT_KNOWN = "I do not know that. I know a little about Pelton, and I can do small tasks."


def unknown(rng, split):
    effort = rng.choice(EFFORTS)
    subjects = [s for s in w.UNKNOWN_SUBJECTS if (zlib.crc32(s.encode()) % 5 == 0) == (split == "test")]
    subject = rng.choice(subjects)
    if split == "train" and rng.random() < 0.35:
        subject = rng.choice([rng.choice(w.CITIES), w.made_up_word(rng), rng.choice(w.TOPICS),
                              "the mayor of " + w.city(rng), "the weather in " + w.city(rng),
                              "the price of " + rng.choice(w.ITEMS)])
    text = wording(rng, split, UNKNOWN).format(s=subject)
    reasoning = by_effort(effort, None, "This is not about Pelton and no task of mine.",
                          "This is not about Pelton and no task of mine. I must not invent an answer.")
    return conversation(rng, "unknown", [user(text), answer(NOT_KNOWN, reasoning)], {"final": NOT_KNOWN}, effort=effort)


# --- arithmetic ------------------------------------------------------------------------------------

ADD = ["What is {a} + {b}?", "{a} + {b}", "{a} + {b} = ?", "Add {a} and {b}.", "Compute {a} + {b}.",
       "How much is {a} plus {b}?", "What is {a} plus {b}?", "What is the sum of {a} and {b}?", "Please add {a} and {b}.",
       "Calculate {a} + {b}.", "{a} plus {b}?", "!Tell me {a} + {b}.", "!Please compute {a} plus {b}.",
       "!What do you get for {a} + {b}?"]
SUBTRACT = ["What is {a} - {b}?", "{a} - {b}", "{a} - {b} = ?", "Subtract {b} from {a}.", "Compute {a} - {b}.",
            "How much is {a} minus {b}?", "What is {a} minus {b}?", "Take {b} from {a}.", "Calculate {a} - {b}.",
            "{a} minus {b}?", "!Tell me {a} - {b}.", "!Please compute {a} minus {b}.",
            "!What do you get for {a} - {b}?"]
STORY_ADD = ["{n} has {a} {i} and buys {b} more. How many {i} does {n} have?",
             "There are {a} {i} in one room and {b} {i} in another. How many are there in all?",
             "!{n} finds {b} {i} and had {a} before. How many {i} are there now?"]
STORY_SUBTRACT = ["{n} has {a} {i} and gives away {b}. How many {i} are left?",
                  "There were {a} {i}. {n} took {b}. How many are left?",
                  "!A shop has {a} {i} and sells {b}. How many {i} remain?"]
PLACES = ["Ones", "Tens", "Hundreds", "Thousands"]


def digits(number):
    return [int(d) for d in reversed(str(number))]


def add_steps(a, b, effort):
    x, y, carry, steps, short = digits(a), digits(b), 0, [], []
    for i in range(max(len(x), len(y))):
        p, q = (x[i] if i < len(x) else 0), (y[i] if i < len(y) else 0)
        total = p + q + carry
        terms = "%d + %d" % (p, q) + (" + 1" if carry else "")
        text = "%s: %s = %d" % (PLACES[i], terms, total)
        short.append("%s = %d" % (terms, total))
        carry = total // 10
        steps.append(text + (", write %d, carry 1." % (total - 10) if carry else "."))
    if effort == "low":
        return "; ".join(short) + "."
    return "%d + %d. " % (a, b) + " ".join(steps) + " Result %d." % (a + b)


def subtract_steps(a, b, effort):
    if a < b:
        return "%d is less than %d, so turn it round. " % (a, b) + subtract_steps(b, a, effort) + " Negative."
    x, y, borrow, steps, short = digits(a), digits(b), 0, [], []
    for i in range(len(x)):
        p, q = x[i], (y[i] if i < len(y) else 0)
        left = p - q - borrow
        terms = "%d - %d" % (p, q) + (" - 1" if borrow else "")
        borrow = 1 if left < 0 else 0
        value = left + 10 * borrow
        text = "%s = %d" % (terms, value) + (", borrow 1" if borrow else "")
        short.append(text)
        steps.append("%s: %s." % (PLACES[i], text))
    if effort == "low":
        return "; ".join(short) + "."
    return "%d - %d. " % (a, b) + " ".join(steps) + " Result %d." % (a - b)


def operands(rng, split, sign):
    while True:
        size = rng.choice((1, 2, 2, 2, 2, 2, 3)) if split == "train" else 2
        low, high = {1: (0, 9), 2: (10, 99), 3: (100, 999)}[size]
        a, b = rng.randint(low, high), rng.randint(low if size == 2 else 0, high)
        if sign == "-" and a < b and rng.random() < 0.8:
            a, b = b, a
        if size == 2 and split == "test" and min(a, b) < 10:
            continue
        if is_test("%d%s%d" % (a, sign, b)) == (split == "test"):
            return a, b


def sum_parts(a, b, sign, effort):
    result = a + b if sign == "+" else a - b
    reasoning = add_steps(a, b, effort) if sign == "+" else subtract_steps(a, b, effort)
    if effort == "high":
        reasoning += (" Check: %d - %d = %d." % (result, b, a) if sign == "+" else
                      " Check: %d + %d = %d." % (result, b, a) if result >= 0 else "")
    return result, reasoning


def arithmetic(rng, split):
    sign, effort = rng.choice("+-"), rng.choice(EFFORTS)
    a, b = operands(rng, split, sign)
    story = a >= b and rng.random() < 0.15
    lists = (STORY_ADD if sign == "+" else STORY_SUBTRACT) if story else (ADD if sign == "+" else SUBTRACT)
    text = wording(rng, split, lists).format(a=a, b=b, n=rng.choice(w.FIRST), i=rng.choice(w.ITEMS))
    result, reasoning = sum_parts(a, b, sign, effort)
    final = "%d %s %d = %d" % (a, sign, b, result)
    return conversation(rng, "add" if sign == "+" else "subtract", [user(text), answer(final, reasoning)],
                        {"number": result}, effort=effort)


# --- units and lists -----------------------------------------------------------------------------------

# from, to, factor, largest number
UNITS = [("km", "m", 1000, 99), ("kg", "g", 1000, 99), ("m", "cm", 100, 99), ("m", "mm", 1000, 99),
         ("t", "kg", 1000, 99), ("l", "ml", 1000, 99), ("cm", "mm", 10, 99), ("hours", "minutes", 60, 9),
         ("minutes", "seconds", 60, 9), ("weeks", "days", 7, 9), ("years", "months", 12, 9), ("feet", "inches", 12, 9)]
CONVERT = ["Convert {n} {f} to {t}.", "How many {t} are {n} {f}?", "{n} {f} in {t}", "What is {n} {f} in {t}?",
           "Please convert {n} {f} to {t}.", "{n} {f} = ? {t}", "!Express {n} {f} in {t}.", "!Turn {n} {f} into {t}."]


def units(rng, split):
    unit, target, factor, largest = rng.choice(UNITS)
    number, effort = rng.randint(2, largest), rng.choice(EFFORTS)
    text = wording(rng, split, CONVERT).format(n=number, f=unit, t=target)
    final = "%d %s = %d %s" % (number, unit, number * factor, target)
    rule = "1 %s = %d %s" % (unit.rstrip("s") if len(unit) > 2 and unit != "feet" else unit, factor, target)
    reasoning = by_effort(effort, "%s." % rule, "%s. %d x %d = %d." % (rule, number, factor, number * factor),
                          "%s. So I multiply: %d x %d = %d." % (rule, number, factor, number * factor))
    return conversation(rng, "units", [user(text), answer(final, reasoning)], {"final": final}, effort=effort)


SORT = ["Sort {l}.", "Sort these numbers: {l}", "Put {l} in order.", "Sort the list {l}.", "Order these: {l}",
        "Please sort {l}.", "!Arrange {l} in order.", "!Can you sort {l}?"]
SORT_DOWN = ["Sort {l} from large to small.", "Sort {l}, largest first.", "Put {l} in falling order.",
             "!Arrange {l}, largest first."]


def sorting(rng, split):
    effort, down = rng.choice(EFFORTS), rng.random() < 0.3
    numbers = rng.sample(range(1, 100), rng.choice((3, 3, 4, 4, 5)))
    text = wording(rng, split, SORT_DOWN if down else SORT).format(l=", ".join(map(str, numbers)))
    final = ", ".join(map(str, sorted(numbers, reverse=down)))
    # The tens decide: they are brought together first.
    order = sorted(numbers, reverse=down)
    groups = "; ".join("%d: %s" % (t, " ".join(str(n) for n in order if n // 10 == t))
                       for t in sorted({n // 10 for n in numbers}, reverse=down))
    way = "largest first" if down else "smallest first"
    reasoning = by_effort(effort, None, "By tens, %s: %s." % (way, groups),
                          "Sort %s. By tens: %s. Then within the tens." % (way, groups))
    return conversation(rng, "sort", [user(text), answer(final, reasoning)], {"final": final}, effort=effort)


# --- JSON from a sentence ---------------------------------------------------------------------------------

DOMAINS = [
    (["name", "age", "city"],
     lambda r: {"name": w.first_name(r) + (" " + w.last_name(r) if r.random() < 0.5 else ""), "age": r.randint(18, 90), "city": w.city(r)},
     ["{name} is {age} years old and lives in {city}.", "{name} from {city} is {age} years old.",
      "In {city} lives {name}, aged {age}.", "{name}, {age}, lives in {city}.", "At {age}, {name} moved to {city}.",
      "!{name} of {city} is {age}.", "!{name} ({age}) lives in {city}."]),
    (["name", "job", "city"],
     lambda r: {"name": w.first_name(r) + (" " + w.last_name(r) if r.random() < 0.5 else ""), "job": r.choice(w.JOBS), "city": w.city(r)},
     ["{name} works as a {job} in {city}.", "{name} is a {job} from {city}.", "The {job} {name} lives in {city}.",
      "{city} has a new {job}: {name}.", "!{name}, a {job}, lives in {city}.", "!In {city}, {name} works as a {job}."]),
    (["item", "quantity", "price"],
     lambda r: {"item": r.choice(w.ITEMS), "quantity": r.randint(2, 99), "price": r.randint(1, 99)},
     ["I bought {quantity} {item} for {price} dollars.", "Please send {quantity} {item}; the price is {price} dollars.",
      "An order of {quantity} {item} costs {price} dollars.", "We need {quantity} {item}. We pay {price} dollars.",
      "!They paid {price} dollars for {quantity} {item}.", "!For {price} dollars we sold {quantity} {item}."]),
    (["event", "day", "city"],
     lambda r: {"event": r.choice(w.EVENTS)[4:], "day": r.choice(w.WEEKDAYS), "city": w.city(r)},
     ["The {event} is on {day} in {city}.", "On {day} the {event} takes place in {city}.",
      "{city} hosts the {event} on {day}.", "Come to {city} on {day} for the {event}.",
      "!In {city}, the {event} begins on {day}.", "!The {event} in {city} is on {day}."]),
    (["guest", "room", "nights"],
     lambda r: {"guest": w.first_name(r) + " " + w.last_name(r), "room": r.randint(100, 499), "nights": r.randint(1, 14)},
     ["{guest} stays in room {room} for {nights} nights.", "Room {room} is booked for {nights} nights by {guest}.",
      "For {nights} nights, {guest} has room {room}.", "{guest} takes room {room}, {nights} nights.",
      "!{guest} booked room {room} for {nights} nights.", "!Room {room}: {guest}, {nights} nights."]),
    (["color", "item", "owner"],
     lambda r: {"color": r.choice(w.COLORS), "item": r.choice(w.ITEMS), "owner": w.first_name(r)},
     ["The {color} {item} belong to {owner}.", "{owner} owns the {color} {item}.", "These {color} {item} are from {owner}.",
      "{owner} lost some {color} {item}.", "!The owner of the {color} {item} is {owner}."]),
]
EXTRACT = ["Extract {k} as JSON: {s}", "Give me JSON with {k}: {s}", "{s} Write {k} as JSON.", "Extract {k} as JSON from: {s}",
           "Turn this into JSON with the keys {k}: {s}", "{s} Extract {k} as JSON.", "JSON with {k}, please: {s}",
           "!Make a JSON object with {k}: {s}", "!{s} Give me {k} as JSON."]


def join_and(names):
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def json_extraction(rng, split):
    effort = rng.choice(EFFORTS)
    keys, make, sentences = rng.choice(DOMAINS)
    values = make(rng)
    wanted = list(keys)
    if rng.random() < 0.4:
        wanted = rng.sample(keys, rng.choice((1, 2, 3)))
    sentence = wording(rng, split, sentences).format(**values)
    asked = wording(rng, split, EXTRACT).format(k=join_and(wanted), s=sentence)
    result = {k: values[k] for k in wanted}
    reasoning = by_effort(effort, None, "Keys: %s." % ", ".join(wanted),
                          "Keys: %s. " % ", ".join(wanted) + " ".join("%s is %s." % (k, values[k]) for k in wanted))
    return conversation(rng, "json", [user(asked), answer(compact(result), reasoning)], {"json": result}, effort=effort)


# --- several turns ------------------------------------------------------------------------------------------

def date_question(rng, split):
    effort = rng.choice(EFFORTS)
    text = wording(rng, split, ["What is the date?", "What day is it today?", "Which date is today?", "What is today's date?",
                                "Tell me the date.", "!Please tell me today's date.", "!What date is it?"])
    out = conversation(rng, "date", [user(text)], {}, effort=effort)
    out["messages"].append(answer("Today is %s." % out["date"],
                                  by_effort(effort, None, "The date is in the system message.",
                                            "The date is in the system message: %s." % out["date"])))
    out["score"] = {"date": True}
    return out


NAME_IS = ["My name is {n}.", "I am {n}.", "Hello, I am {n}.", "Hi, my name is {n}.", "!You can call me {n}.", "!Hello, this is {n}."]
WHO_AM_I = ["What is my name?", "Who am I?", "Do you remember my name?", "Tell me my name.", "!Do you know my name?", "!How am I called?"]


def turn(rng, split, effort):
    """One earlier exchange, as history."""
    kind = rng.random()
    if kind < 0.4:
        messages = pelton(rng, split)["messages"]
    elif kind < 0.6:
        messages = small_talk_messages(rng, split, effort)
    elif kind < 0.9:
        messages = arithmetic(rng, split)["messages"]
    else:
        messages = unknown(rng, split)["messages"]
    return [history(m) for m in messages]


def multi_turn(rng, split):
    effort = rng.choice(EFFORTS)
    kind = rng.random()
    if kind < 0.35:
        name = w.first_name(rng)
        hello = "Hello, %s! What can I do for you?" % name
        messages = [user(wording(rng, split, NAME_IS).format(n=name))]
        if rng.random() < 0.3:
            messages.append(answer(hello, by_effort(effort, None, "The user is called %s." % name,
                                                    "The user is called %s. I greet back." % name)))
            return conversation(rng, "turns", messages, {"final": hello}, effort=effort)
        messages.append(history(answer(hello)))
        if rng.random() < 0.5:
            messages += turn(rng, split, effort)
        final = "Your name is %s." % name
        messages += [user(wording(rng, split, WHO_AM_I)),
                     answer(final, by_effort(effort, None, "The user said: %s." % name,
                                             "The user said it before: %s." % name))]
        return conversation(rng, "turns", messages, {"final": final}, effort=effort)
    if kind < 0.7:
        # Goes on with the last result.
        sign, second = "+", rng.choice("+-")
        while True:
            a, b = operands(rng, split, sign)
            c = rng.randint(2, 49)
            if a + b - c >= 0 and a + b < 900:
                break
        messages = [user(wording(rng, split, ADD).format(a=a, b=b)), history(answer("%d + %d = %d" % (a, b, a + b)))]
        text = wording(rng, split, ["Add {c} to that.", "Plus {c}?", "And {c} more?", "Now add {c}.", "!Then add {c}."]
                       if second == "+" else ["Subtract {c} from that.", "Minus {c}?", "Now subtract {c}.", "!Then subtract {c}."])
        result, reasoning = sum_parts(a + b, c, second, effort)
        final = "%d %s %d = %d" % (a + b, second, c, result)
        messages += [user(text.format(c=c)), answer(final, reasoning)]
        return conversation(rng, "turns", messages, {"number": result}, effort=effort)
    earlier = []
    for _ in range(rng.choice((1, 1, 2))):
        earlier += turn(rng, split, effort)
    last = rng.choice((pelton, arithmetic, small_talk, units))(rng, split)
    last["messages"] = earlier + last["messages"]
    last["task"] = "turns"
    return last


# --- copying: what tool calls and extraction need most, in its densest form -----------------------------------


def some_words(rng, least, most):
    pools = (w.FIRST, w.LAST, w.CITIES, w.ITEMS, w.JOBS, w.COLORS, w.ROOMS, w.WEEKDAYS, w.LANGUAGES, w.SYMBOLS, w.CURRENCIES)
    words = [w.made_up_word(rng) if rng.random() < 0.08 else rng.choice(rng.choice(pools))
             for _ in range(rng.randint(least, most))]
    if rng.random() < 0.3:
        words[rng.randrange(len(words))] = str(rng.randint(0, 999))
    return words


def repeat(rng, split):
    effort = rng.choice(EFFORTS)
    if rng.random() < 0.3:
        text = rng.choice((rng.choice(w.NOTES), rng.choice(w.SONGS), rng.choice(w.EVENTS), rng.choice(w.TOPICS)))
    else:
        text = " ".join(some_words(rng, 3, 10))
    asked = wording(rng, split, ["Repeat: {t}", "Say {t}", "Repeat this: {t}", "Copy: {t}", "Please repeat: {t}",
                                 "Echo {t}", "!Say this again: {t}", "!Please copy: {t}"]).format(t=text)
    return conversation(rng, "repeat", [user(asked), answer(text, by_effort(effort, None, "I copy the words.",
                                                                            "I copy the words one by one."))],
                        {"final": text}, effort=effort)


def word_list(rng, split):
    effort, words = rng.choice(EFFORTS), some_words(rng, 2, 8)
    asked = wording(rng, split, ["Make a JSON list of {l}.", "Write {l} as a JSON list.", "JSON list: {l}",
                                 "Give me {l} as a JSON list.", "Put {l} into a JSON list.",
                                 "!I need a JSON list of {l}.", "!Turn {l} into a JSON list."]).format(l=join_and(words))
    result = [int(x) if x.isdigit() else x for x in words]
    return conversation(rng, "list", [user(asked), answer(compact(result), by_effort(
        effort, None, "A list of %d." % len(words), "A list of %d, in the same order." % len(words)))],
                        {"json": result}, effort=effort)

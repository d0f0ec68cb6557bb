"""Generators of conversations, one per task. Each takes (rng, split) and returns a conversation:

    {task, effort, date, instructions, tools, messages, score, new_wording}

A message is {role, content | call, reasoning?, train?}; those with train are what the model learns to
say. `score` says how an answer is judged (eval_tasks.py); new_wording, that a test uses wordings marked "!". split is "train" or "test": wordings that begin
with "!" exist only in test, and so do some operands and some expansions of questions (`is_test`).
"""
import zlib

import wordings as wd
import words as w
from facts import FACTS, SMALL_TALK, is_test, question
from harmony import compact

EFFORTS = ["low", "medium", "medium", "medium", "high"]
INSTRUCTIONS = ["You are a helpful assistant.", "You are a helpful assistant.", "Be brief.", "Answer briefly.",
                "Answer in English.", "You are a friendly assistant.", "Be polite.", "Help the user.",
                "You are Pelton's assistant.", "Answer the user's questions."]


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


NOT_KNOWN = "I do not know that. I know a little about Pelton, and I can do small tasks."


def unknown(rng, split):
    effort = rng.choice(EFFORTS)
    subjects = [s for s in w.UNKNOWN_SUBJECTS if (zlib.crc32(s.encode()) % 5 == 0) == (split == "test")]
    subject = rng.choice(subjects)
    if split == "train" and rng.random() < 0.35:
        subject = rng.choice([rng.choice(w.CITIES), w.made_up_word(rng), rng.choice(w.TOPICS),
                              "the mayor of " + w.city(rng), "the weather in " + w.city(rng),
                              "the price of " + rng.choice(w.ITEMS)])
    text = wd.UNKNOWN.ask(rng, split).format(s=subject)
    reasoning = by_effort(effort, None, "This is not about Pelton and no task of mine.",
                          "This is not about Pelton and no task of mine. I must not invent an answer.")
    return conversation(rng, "unknown", [user(text), answer(NOT_KNOWN, reasoning)], {"final": NOT_KNOWN}, effort=effort)


# --- arithmetic ------------------------------------------------------------------------------------

PLACES = ["Ones", "Tens", "Hundreds", "Thousands"]


def digits(number):
    return [int(d) for d in reversed(str(number))]


def joined(effort, begin, steps, result):
    """At every effort each carry is written down; with less effort without the names of the places."""
    if effort == "low":
        return "%s: %s; result %d." % (begin, "; ".join(text for _, text in steps), result)
    return "%s. %s Result %d." % (begin, " ".join("%s: %s." % step for step in steps), result)


def add_steps(a, b, effort):
    x, y, carry, steps = digits(a), digits(b), 0, []
    for i in range(max(len(x), len(y))):
        p, q = (x[i] if i < len(x) else 0), (y[i] if i < len(y) else 0)
        total = p + q + carry
        text = "%d + %d" % (p, q) + (" + 1" if carry else "") + " = %d" % total
        carry = total // 10
        steps.append((PLACES[i], text + (", write %d, carry 1" % (total - 10) if carry else "")))
    return joined(effort, "%d + %d" % (a, b), steps, a + b)


def compared(a, b):
    """Which is larger, and how one sees it: "4 = 4, 2 < 7"."""
    x, y, seen = str(a), str(b), []
    if len(x) != len(y):
        return "more digits" if len(x) > len(y) else "fewer digits"
    for p, q in zip(x, y):
        seen.append("%s %s %s" % (p, "=" if p == q else ">" if p > q else "<", q))
        if p != q:
            break
    return ", ".join(seen)


def subtract_steps(a, b, effort):
    begin, large, small = "%d - %d: %s" % (a, b, compared(a, b)), max(a, b), min(a, b)
    if a < b:
        begin += ", so %d - %d" % (b, a)
    x, y, borrow, steps = digits(large), digits(small), 0, []
    for i in range(len(x)):
        p, q = x[i], (y[i] if i < len(y) else 0)
        left = p - q - borrow
        text = "%d - %d" % (p, q) + (" - 1" if borrow else "")
        borrow = 1 if left < 0 else 0
        steps.append((PLACES[i], text + " = %d" % (left + 10 * borrow) + (", borrow 1" if borrow else "")))
    return joined(effort, begin, steps, large - small) + (" Turned: %d." % (a - b) if a < b else "")


def operands(rng, split, sign):
    while True:
        size = rng.choice((1, 2, 2, 2, 2, 2, 2, 2, 3)) if split == "train" else 2
        low, high = {1: (0, 9), 2: (10, 99), 3: (100, 999)}[size]
        a, b = rng.randint(low, high), rng.randint(low if size == 2 else 0, high)
        if sign == "-" and a < b and rng.random() < (0.6 if split == "train" else 0.8):
            a, b = b, a
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
    story = a >= b and rng.random() < 0.2
    asks = (wd.STORY_ADD if sign == "+" else wd.STORY_SUBTRACT) if story else (wd.ADD if sign == "+" else wd.SUBTRACT)
    text = asks.ask(rng, split).format(a=a, b=b, n=rng.choice(w.FIRST), i=rng.choice(w.ITEMS))
    result, reasoning = sum_parts(a, b, sign, effort)
    final = "%d %s %d = %d" % (a, sign, b, result)
    return conversation(rng, "add" if sign == "+" else "subtract", [user(text), answer(final, reasoning)],
                        {"number": result}, effort=effort)


# --- units and lists -----------------------------------------------------------------------------------

# from, to, factor, largest number
UNITS = [("km", "m", 1000, 99), ("kg", "g", 1000, 99), ("m", "cm", 100, 99), ("m", "mm", 1000, 99),
         ("t", "kg", 1000, 99), ("l", "ml", 1000, 99), ("cm", "mm", 10, 99), ("hours", "minutes", 60, 9),
         ("minutes", "seconds", 60, 9), ("weeks", "days", 7, 9), ("years", "months", 12, 9), ("feet", "inches", 12, 9)]


def units(rng, split):
    unit, target, factor, largest = rng.choice(UNITS)
    number, effort = rng.randint(2, largest), rng.choice(EFFORTS)
    text = wd.CONVERT.ask(rng, split).format(n=number, f=unit, t=target)
    final = "%d %s = %d %s" % (number, unit, number * factor, target)
    rule = "1 %s = %d %s" % (unit.rstrip("s") if len(unit) > 2 and unit != "feet" else unit, factor, target)
    reasoning = by_effort(effort, "%s." % rule, "%s. %d x %d = %d." % (rule, number, factor, number * factor),
                          "%s. So I multiply: %d x %d = %d." % (rule, number, factor, number * factor))
    return conversation(rng, "units", [user(text), answer(final, reasoning)], {"final": final}, effort=effort)


def sorting(rng, split):
    """The next one is picked from those that are left, until one is left."""
    effort, down = rng.choice(EFFORTS), rng.random() < 0.3
    numbers = rng.sample(range(1, 100), rng.choice((3, 3, 4)))
    text = (wd.SORT_DOWN if down else wd.SORT).ask(rng, split).format(l=", ".join(map(str, numbers)))
    order = sorted(numbers, reverse=down)
    left, steps = list(numbers), []
    for number in order[:-1]:
        steps.append("%s: %d" % (", ".join(map(str, left)), number))
        left.remove(number)
    reasoning = "; ".join(steps) + "; %d." % order[-1]
    way = "Largest first. " if down else "Smallest first. "
    reasoning = by_effort(effort, reasoning, way + reasoning, "The user wants a list in order. " + way + reasoning)
    final = ", ".join(map(str, order))
    return conversation(rng, "sort", [user(text), answer(final, reasoning)], {"final": final}, effort=effort)


# --- JSON from a sentence ---------------------------------------------------------------------------------

# Sentences put together from statements, in training beside those of wordings.py: subject, then the statements'
# ways to be put. In any order, in one sentence or in two.
LIVES = ["lives in {city}", "comes from {city}", "has a house in {city}", "was born in {city}"]
STATEMENTS = {
    wd.PERSON_AGE: ("{name}", ["is {age} years old", "is {age}", "turned {age} in spring", "will soon be {age}"], LIVES),
    wd.PERSON_JOB: ("{name}", ["is a {job}", "works as a {job}", "earns money as a {job}", "was always a {job}"], LIVES),
    wd.PURCHASE: ("The order", ["is for {quantity} {item}", "has {quantity} {item}", "brings us {quantity} {item}"],
                  ["costs {price} dollars", "was {price} dollars", "comes to {price} dollars"]),
    wd.GATHERING: ("The {event}", ["is on {day}", "starts on {day}", "opens on {day}", "was moved to {day}"],
                   ["takes place in {city}", "is in {city}", "comes to {city}", "is what {city} looks forward to"]),
    wd.STAY: ("{guest}", ["has room {room}", "sleeps in room {room}", "likes room {room}", "was given room {room}"],
              ["stays {nights} nights", "pays for {nights} nights", "remains for {nights} nights"]),
    wd.BELONGING: ("The {item}", ["are {color}", "were painted {color}", "have a {color} box"],
                   ["belong to {owner}", "are from {owner}", "were sold by {owner}", "were left here by {owner}"])}
COMPOSITIONS = ["{s} {p} and {q}.", "{s} {p}, and {q}.", "{s} {p}. {s} {q}.", "{s} {p}; also, {s} {q}.", "I heard: {s} {p} and {q}.",
                "{s} {p}, they say, and {q}.", "As we know, {s} {p}. Besides, {s} {q}.", "{s} {p}, but {q}."]


def composed(rng, kind):
    subject, *statements = STATEMENTS[kind]
    rng.shuffle(statements)
    first, second = (rng.choice(ways) for ways in statements)
    return rng.choice(COMPOSITIONS).replace("{s}", subject).replace("{p}", first).replace("{q}", second)


def full_name(rng):
    return w.first_name(rng) + (" " + w.last_name(rng) if rng.random() < 0.5 else "")


DOMAINS = [
    (wd.PERSON_AGE, lambda r: {"name": full_name(r), "age": r.randint(18, 90), "city": w.city(r)}),
    (wd.PERSON_JOB, lambda r: {"name": full_name(r), "job": r.choice(w.JOBS), "city": w.city(r)}),
    (wd.PURCHASE, lambda r: {"item": r.choice(w.ITEMS), "quantity": r.randint(2, 99), "price": r.randint(1, 99)}),
    (wd.GATHERING, lambda r: {"event": r.choice(w.EVENTS)[4:], "day": r.choice(w.WEEKDAYS), "city": w.city(r)}),
    (wd.STAY, lambda r: {"guest": w.first_name(r) + " " + w.last_name(r), "room": r.randint(100, 499),
                         "nights": r.randint(1, 14)}),
    (wd.BELONGING, lambda r: {"color": r.choice(w.COLORS), "item": r.choice(w.ITEMS), "owner": w.first_name(r)})]


def join_and(names):
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def json_extraction(rng, split):
    effort = rng.choice(EFFORTS)
    sentences, make = rng.choice(DOMAINS)
    values = make(rng)
    wanted = list(values)
    if rng.random() < 0.5:
        wanted = rng.sample(wanted, rng.choice((1, 2, 3)))
    pattern = composed(rng, sentences) if split == "train" and rng.random() < 0.35 else sentences.pick(rng, split)
    sentence = pattern.format(**values)
    asked = wd.EXTRACT.ask(rng, split).format(k=join_and(wanted), s=sentence)
    result = {k: values[k] for k in wanted}
    reasoning = by_effort(effort, None, "Keys: %s." % ", ".join(wanted),
                          "Keys: %s. " % ", ".join(wanted) + " ".join("%s is %s." % (k, values[k]) for k in wanted))
    return conversation(rng, "json", [user(asked), answer(compact(result), reasoning)], {"json": result}, effort=effort)


# --- several turns ------------------------------------------------------------------------------------------

def date_question(rng, split):
    effort = rng.choice(EFFORTS)
    text = wd.DATE.ask(rng, split)
    out = conversation(rng, "date", [user(text)], {}, effort=effort)
    out["messages"].append(answer("Today is %s." % out["date"],
                                  by_effort(effort, None, "The date is in the system message.",
                                            "The date is in the system message: %s." % out["date"])))
    out["score"] = {"date": True}
    return out


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
        messages = [user(wd.NAME_IS.ask(rng, split).format(n=name))]
        if rng.random() < 0.3:
            messages.append(answer(hello, by_effort(effort, None, "The user is called %s." % name,
                                                    "The user is called %s. I greet back." % name)))
            return conversation(rng, "turns", messages, {"final": hello}, effort=effort)
        messages.append(history(answer(hello)))
        if rng.random() < 0.5:
            messages += turn(rng, split, effort)
        final = "Your name is %s." % name
        messages += [user(wd.WHO_AM_I.ask(rng, split)),
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
        messages = [user(wd.ADD.ask(rng, split).format(a=a, b=b)), history(answer("%d + %d = %d" % (a, b, a + b)))]
        text = (wd.MORE if second == "+" else wd.LESS).ask(rng, split)
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
    words = [w.made_up_word(rng) if w.is_made_up(rng) else rng.choice(rng.choice(pools))
             for _ in range(rng.randint(least, most))]
    if rng.random() < 0.3:
        words[rng.randrange(len(words))] = str(rng.randint(0, 999))
    return words


def repeat(rng, split):
    effort = rng.choice(EFFORTS)
    if rng.random() < 0.3:
        text = rng.choice((rng.choice(w.NOTES), rng.choice(w.SONGS), rng.choice(w.EVENTS), rng.choice(w.TOPICS)))
    else:
        text = " ".join(some_words(rng, 2, 6))
    asked = wd.REPEAT.ask(rng, split).format(t=text)
    return conversation(rng, "repeat", [user(asked), answer(text, by_effort(effort, None, "I copy the words.",
                                                                            "I copy the words one by one."))],
                        {"final": text}, effort=effort)


def word_list(rng, split):
    effort, words = rng.choice(EFFORTS), some_words(rng, 2, 5)
    asked = wd.WORD_LIST.ask(rng, split).format(l=join_and(words))
    result = [int(x) if x.isdigit() else x for x in words]
    return conversation(rng, "list", [user(asked), answer(compact(result), by_effort(
        effort, None, "A list of %d." % len(words), "A list of %d, in the same order." % len(words)))],
                        {"json": result}, effort=effort)

"""The adapter's task: a question about four tables, answered by a query in JSON. The base was never trained on one.

As tasks.py: pure functions of (rng, split); wordings marked "!" are held out for tests.
"""
import random

import corpus
import words as w
from harmony import compact
from tasks import EFFORTS, answer, by_effort, conversation, user
from wordings import Wordings

# How a condition is put, by table: phrases behind the table's name, and the test.
CONDITIONS = {
    "people": [("in {city}", "city = {city}"), ("from {city}", "city = {city}"), ("who live in {city}", "city = {city}"),
               ("older than {n}", "age > {n}"), ("over {n}", "age > {n}"), ("younger than {n}", "age < {n}"), ("under {n}", "age < {n}"),
               ("named {name}", "name = {name}"), ("with the name {name}", "name = {name}"), ("called {name}", "name = {name}"),
               ("who work as a {job}", "job = {job}"), ("with the job {job}", "job = {job}")],
    "orders": [("for {item}", "item = {item}"), ("with the item {item}", "item = {item}"),
               ("over {n} dollars", "price > {n}"), ("under {n} dollars", "price < {n}"), ("with a price over {n}", "price > {n}"),
               ("with a price under {n}", "price < {n}"), ("with a quantity over {n}", "quantity > {n}"),
               ("with a quantity under {n}", "quantity < {n}")],
    "guests": [("in room {room}", "room = {room}"), ("who have room {room}", "room = {room}"), ("with room {room}", "room = {room}"),
               ("who stay over {n} nights", "nights > {n}"), ("with over {n} nights", "nights > {n}"),
               ("with under {n} nights", "nights < {n}"), ("named {name}", "name = {name}"), ("called {name}", "name = {name}")],
    "events": [("on {day}", "day = {day}"), ("that begin on {day}", "day = {day}"), ("in {city}", "city = {city}"),
               ("that take place in {city}", "city = {city}"), ("with the name {event}", "name = {event}")]}
COLUMNS = {"people": ["name", "age", "city", "job"], "orders": ["item", "quantity", "price"], "guests": ["name", "room", "nights"],
           "events": ["name", "day", "city"]}

ALL = Wordings("""
[Show|List|Give|Find] [me|] all {t}.
[Show|List] [me|] [the|] {t}.
[Who or what are|What are] all the {t}?
I [need|want] all {t}.
[Can you|Could you] [show|list] all {t}?
[Give|Show] me every one of the {t}.
! I [need|want] [the|] {t}.
! [Find|Give] me the {t}.
""")
ONE = Wordings("""
[Show|List|Give me|Find] the {c} of all {t}.
[What is|Tell me] the {c} of the {t}?
[Show|List|Give me] the {c} of {t}.
I [need|want] the {c} of all {t}.
[Can you|Could you] [show|list|find] the {c} of all {t}?
[Find|Look up] the {c} of the {t}.
Only the {c} of the {t}, please.
! I [need|want to know] the {c} of the {t}.
! [Tell me|Show me] the {c} of all {t}.
! [Can you|Could you] give me the {c} of the {t}?
""")
COUNT = Wordings("""
How many {t} are there?
How many {t} [do we have|are there now]?
[Count|Please count] [all|the|] {t}.
What is the number of {t}?
[Tell me|Give me] the number of {t}.
[Can you|Could you] count the {t}?
I [need|want] the number of {t}.
! [Tell me|Show me] how many {t} there are.
! I [need|want] to know the number of {t}.
! [Can you|Could you] [tell|show] me the number of {t}?
""")


def values_for(rng):
    return {"city": w.city(rng), "name": w.first_name(rng), "job": rng.choice(w.JOBS), "item": rng.choice(w.ITEMS), "n": rng.randint(2, 99),
            "room": rng.randint(100, 499), "day": rng.choice(w.WEEKDAYS), "event": rng.choice(w.EVENTS)[4:]}


# The base hardly ever says a plural: what it has never said is hard to say for so small an addition.
NAMES = {"people": "person", "orders": "order", "guests": "guest", "events": "event"}


def query(rng, split):
    """A conversation whose answer is one query: {"table": "person", "get": "city", "test": "age > 40"}."""
    effort, table = rng.choice(EFFORTS), rng.choice(list(COLUMNS))
    column, values = rng.choice(COLUMNS[table]), values_for(rng)
    phrase, test = rng.choice(CONDITIONS[table]) if rng.random() < 0.8 else ("", "")
    asks, wanted = rng.choice(((ALL, ""), (ONE, column), (ONE, column), (COUNT, "number")))
    named = (table + " " + phrase.format(**values)).strip()
    text = asks.ask(rng, split).format(t=named, c=column)
    result = {"table": NAMES[table], **({"get": wanted} if wanted else {}), **({"test": test.format(**values)} if test else {})}
    keys = "Keys: %s." % ", ".join(result)
    reasoning = by_effort(effort, None, keys, "The user wants JSON. " + keys)
    return conversation(rng, "query", [user(text), answer(compact(result), reasoning)], {"json": result}, effort=effort)


# Beside its own task, three in ten of what the base was trained on last, so that it keeps that.
OTHERS = 0.3


def conversation_at(seed, split, index):
    """As corpus.conversation_at, for the adapter's training ("train") and its own held-out questions ("test")."""
    rng = random.Random("query %d %s %d" % (seed, split, index))
    rng.made_up_share = 0.06 if split == "test" else 0.25
    if split == "train" and rng.random() < OTHERS:
        return corpus.conversation_at(seed + 1, split, corpus.FINISH_FROM + index)
    return query(rng, split)

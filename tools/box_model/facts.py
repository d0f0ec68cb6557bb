"""What Pelton's box model knows: facts.txt, as grammars of questions with one answer each.

    = topic        as the reasoning names it; begins a fact
    ~ a|b          noun phrases for it; WRAPPERS make questions of them
    & a|b          more of them, for training only
    ! pattern      a wording that is never trained on: it measures wordings that are really new
    > answer
    pattern        any other line: a wording that is trained on

`[a|b|c]` in a pattern is a choice, `[a|]` may be empty. Checked against README.md, HACKING.md, docs/glossary.md
and the help of the verbs. One core of a question in eight is never trained on either: questions that differ only
in small words and politeness share their core. `facts.py` alone prints how near the new wordings are.
"""
import os
import re
import zlib

# {t}: a noun phrase of the fact.
WRAPPERS = ["Can you explain {t}?", "I have a question about {t}.", "{t}, please.", "Help me with {t}.",
            "What should I know about {t}?", "Tell me about {t}.", "Explain {t}.", "{t}?", "What about {t}?",
            "I want to know more about {t}.", "Do you know anything about {t}?", "My question is about {t}.",
            "Give me a hint about {t}.", "I need information on {t}.", "Can you tell me something about {t}?",
            "I am looking for {t}.", "How about {t}?", "I do not understand {t}.", "Say a few words about {t}.",
            "What do you know about {t}?", "I wonder about {t}.", "I have a problem with {t}.", "I would like to ask about {t}.", "Where can I read about {t}?"]
MORE_WRAPPERS = ["I am interested in {t}.", "Let us talk about {t}.", "Please explain {t} to me.", "Do you have information on {t}?",
                 "What do I do about {t}?", "Now {t}.", "Could you explain {t}?", "How is it with {t}?"]
NEW_WRAPPERS = ["I need help with {t}.", "I am looking for information about {t}.", "Is there something I should know about {t}?",
                "I want to read something about {t}.", "I want you to explain {t}.", "Could you say something about {t}?",
                "What can you say about {t}?"]

SMALL_TALK_TEXT = """
= hello
[Hello|Hi|Hey|Good morning|Good evening|Good day][!|.|]
[Hello|Hi|Hey] [there|you][!|.|]
! [Hello|Hi], [nice to meet you|how do you do][!|.|]
> Hello! Ask me something about Pelton, or give me a small task.

= thanks
[Thanks|Thank you|Thanks a lot|Many thanks][!|.|]
[Great|Good|Nice], [thanks|thank you][!|.|]
! [Thank you very much|Thanks for your help][!|.|]
> You are welcome.

= goodbye
[Bye|Goodbye|See you|Good night][!|.|]
[Bye|Goodbye], [thanks|see you|and thanks][!|.|]
! [I have to go now|That was all][!|.|]
> Goodbye!

= how I am
How are you[ today| doing|]?
[How is it going|Are you well|All good]?
! How do you feel[ today|]?
> I am well: my weights are in place. What can I do for you?

= a joke
[Tell me|Do you know|Make] a joke[ please|].
! [Make me laugh|Say something funny][.|!|]
> Why did the token stop? It saw its end.
"""

SMALL_WORDS = set("a an the of to is are does do did i it that in on for with me my please hi hello hey thanks thank "
                  "question quick one".split())
OPTIONAL_WORDS = set("a an the of to is are does do did for".split())


def is_test(text):
    """One text in eight is never trained on."""
    return zlib.crc32(text.encode()) % 8 == 0


def core(text):
    """What is left without case, punctuation and small words; of nothing but small words, all of them."""
    words = re.findall(r"[a-z0-9+_]+", text.lower().replace("'s", " is"))
    return " ".join(x for x in words if x not in SMALL_WORDS) or " ".join(words)


def expand(pattern):
    """All texts of a pattern. Choices do not nest."""
    texts = [""]
    rest = pattern
    while rest:
        before, bracket, rest = rest.partition("[")
        texts = [t + before for t in texts]
        if bracket:
            inside, _, rest = rest.partition("]")
            texts = [t + choice for t in texts for choice in inside.split("|")]
    return [re.sub(r" ([?.!,])", r"\1", " ".join(t.split())) for t in texts]


class Fact:
    """trained, unseen: expansions by pattern; new: wordings never trained on."""

    def __init__(self, topic):
        self.topic, self.answer = topic, None
        self.topics, self.hints, self.patterns, self.new_patterns = [], [], [], []

    def split(self):
        self.new = [expand(p) for p in self.new_patterns]
        self.new_cores = {core(t) for texts in self.new for t in texts}
        self.trained, self.unseen = [], []
        for pattern in self.patterns:
            texts = expand(pattern)
            self.trained.append([t for t in texts if not is_test(core(t)) and core(t) not in self.new_cores])
            self.unseen.append([t for t in texts if is_test(core(t))])
        self.trained, self.unseen = ([x for x in texts if x] for texts in (self.trained, self.unseen))
        assert self.trained and self.new, self.topic


def parse(text):
    facts = []
    for line in text.strip().splitlines():
        mark, rest = line[:2], line[2:].strip()
        if mark == "= ":
            facts.append(Fact(rest))
        elif mark == "~ ":
            facts[-1].topics = rest.split("|")
        elif mark == "& ":
            facts[-1].hints = rest.split("|")
        elif mark == "> ":
            facts[-1].answer = rest
        elif mark == "! ":
            facts[-1].new_patterns.append(rest)
        elif line.strip() and mark != "# ":
            facts[-1].patterns.append(line.strip())
    for fact in facts:
        fact.split()
    return facts


def read_facts():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "facts.txt"), encoding="utf-8") as file:
        return parse(file.read())


FACTS = read_facts()
SMALL_TALK = parse(SMALL_TALK_TEXT)


BEFORE = ["Please: ", "Hi! ", "Question: ", "Hello, ", "One question: ", "Quick question: ", "Hey, ", "hi, ", "Hello. "]
AFTER = [" Thanks.", " Please.", " Thank you!", " please", " thanks", " Thank you."]


def wrapped(rng, topics, wrappers):
    text = rng.choice(wrappers).format(t=rng.choice(topics))
    return text if text.startswith(("pelton ", "reasoning_", "base_", "tool_")) else text[0].upper() + text[1:]


def in_haste(rng, text):
    """As one types in haste: "which port Pelton listen on"."""
    return " ".join(x for x in text.split(" ") if x.lower() not in OPTIONAL_WORDS or rng.random() < 0.4) or text


# Words that may stand for each other, mostly.
SYNONYMS = ["computer machine laptop pc", "software program application tool", "flag option setting switch", "show print display list",
            "stop end quit finish", "start run launch begin", "want need wish", "get receive obtain fetch", "make let", "possible allowed",
            "fast quick", "speed performance", "measure test find", "change set modify", "use take employ", "people users others",
            "server process service", "answer reply response", "text sentence prompt", "folder directory", "big large", "delete remove",
            "choose pick select", "reach access contact", "model checkpoint", "code source", "written made programmed", "mean say",
            "reasoning thinking thoughts", "tokens words", "who what", "which what", "command verb", "limit maximum", "memory ram",
            "key password", "busy full", "build compile install", "have own", "know understand", "read see", "send give", "function tool"]
SAME = {x: [y for y in group.split() if y != x] for group in SYNONYMS for x in group.split()}


def in_other_words(rng, text):
    words = text.split(" ")
    for i, word in enumerate(words):
        bare = word.strip(".?!,").lower()
        if bare in SAME and rng.random() < 0.4:
            words[i] = word.lower().replace(bare, rng.choice(SAME[bare]))
    return " ".join(words)


def with_a_word_less(rng, text):
    words = text.split(" ")
    if len(words) > 3:
        del words[rng.randrange(len(words))]
    return " ".join(words)


def decorated(rng, text):
    """What should not matter. It leaves the core of the text as it is."""
    if rng.random() < 0.3:
        text = rng.choice(BEFORE) + text
    if rng.random() < 0.2:
        text += rng.choice(AFTER)
    elif rng.random() < 0.2:
        text = text.rstrip("?.!")
    return text.lower() if rng.random() < 0.15 else text


def known_wording(rng, fact, test):
    """Of a pattern that is trained on, or with a wrapper that is; with `test`, one of those kept for tests."""
    if fact.topics and rng.random() < (0.25 if test else 0.35):
        topics = fact.hints if fact.hints and not test and rng.random() < 0.6 else fact.topics
        for _ in range(8 if not test else 40):
            text = wrapped(rng, topics, WRAPPERS if test else WRAPPERS + MORE_WRAPPERS)
            if is_test(core(text)) == test and core(text) not in fact.new_cores:
                return text
    patterns = fact.unseen if test else fact.trained
    return rng.choice(rng.choice(patterns or fact.new))


def new_wording(rng, fact):
    if fact.topics and rng.random() < 0.25:
        return wrapped(rng, fact.topics, NEW_WRAPPERS)
    return rng.choice(rng.choice(fact.new))


def question(rng, fact, kind):
    """kind: "train", "test" (a wording of a trained pattern, but never trained on) or "new"."""
    if kind == "new":
        return decorated(rng, new_wording(rng, fact))
    text = known_wording(rng, fact, kind == "test")
    if kind == "train" and rng.random() < 0.5:
        other = rng.choice((in_haste, with_a_word_less, in_other_words, in_other_words))(rng, text)
        if not is_test(core(other)) and core(other) not in fact.new_cores and len(core(other).split()) > 2:
            text = other
    return decorated(rng, text) if fact.topics else text


def report():
    """How many wordings there are, and the trained one nearest to each new pattern."""
    patterns = sum(len(f.patterns) for f in FACTS)
    print("%d facts, %d patterns, %d trained wordings, %d kept for tests, %d new patterns" % (
        len(FACTS), patterns, sum(len(p) for f in FACTS for p in f.trained),
        sum(len(p) for f in FACTS for p in f.unseen), sum(len(f.new_patterns) for f in FACTS)))
    owners, words = {}, set()
    for fact in FACTS:
        for text in (t for p in fact.trained + fact.unseen for t in p):
            if owners.setdefault(core(text), fact) is not fact:
                print("two facts:", text, "/", owners[core(text)].topic, "/", fact.topic)
            words |= set(re.findall(r"\w+", text.lower()))
    rows = []
    for fact in FACTS:
        if len(fact.answer.split()) > 24:
            print("long:", len(fact.answer.split()), fact.answer)
        known = [(set(core(t).split()), t) for p in fact.trained for t in p]
        for text in (t for p in fact.new for t in p):
            bag = set(core(text).split())
            rows.append(max((len(bag & k) / len(bag | k), text, t) for k, t in known))
            for word in set(re.findall(r"\w+", text.lower())) - words:
                print("word seen nowhere:", word, "|", text)
            if core(text) in owners:
                print("NOT NEW:", text)
    for overlap, text, nearest in sorted(rows, reverse=True):
        print("%.2f  %-70s %s" % (overlap, text, nearest))


if __name__ == "__main__":
    report()

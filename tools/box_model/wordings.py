"""How users may put a request. `[a|b]` is a choice; lines that begin with "!" are held out for tests.

Held-out ones are new sentences of words that training knows. A pattern is drawn first, then one of its
expansions, so that a pattern with many choices does not push the others aside.
"""
import facts

BEFORE = ["Hi! ", "Hello! ", "Hey, ", "OK, ", "Please: ", "Hello, ", "One thing: "]
AFTER = [" Thanks.", " Thank you!", " Please."]


class Wordings:
    def __init__(self, text):
        self.known, self.new = [], []
        for line in text.strip().splitlines():
            line = line.strip()
            (self.new if line.startswith("!") else self.known).append(facts.expand(line.lstrip("! ")))

    def pick(self, rng, split):
        """Half of the tests use wordings that training never saw."""
        patterns = self.known
        if split == "test" and self.new and rng.random() < 0.5:
            rng.new_wording = True
            patterns = self.new
        return rng.choice(rng.choice(patterns))

    def ask(self, rng, split):
        return noisy(rng, self.pick(rng, split))


def noisy(rng, text):
    """As people type: now and then a greeting, thanks, a small letter, no full stop. In tests as in training."""
    begins_with_value, ends_with_value = text.startswith("{"), text.endswith("}")
    if rng.random() < 0.12 and not begins_with_value and not text.startswith("I "):
        text = text[0].lower() + text[1:]
    if rng.random() < 0.12 and text[-1] in ".?!" and not text.endswith("}."):
        text = text[:-1]
    elif rng.random() < 0.08 and not ends_with_value:
        text += rng.choice(AFTER)
    if rng.random() < 0.12:
        text = rng.choice(BEFORE) + text
    return text


# --- arithmetic ------------------------------------------------------------------------------------

ADD = Wordings("""
What is {a} [+|plus] {b}?
{a} [+|plus] {b}
{a} [+|plus] {b}?
{a} + {b} = ?
[Add|Sum] {a} and {b}.
Add {b} to {a}.
[Compute|Calculate|Work out] {a} [+|plus] {b}.
How much is {a} [+|plus] {b}?
What [is|do you get for] the sum of {a} and {b}?
[Tell me|Give me|I need] the sum of {a} and {b}.
What do I get [when|if] I add {a} and {b}?
What does {a} [+|plus] {b} [make|give]?
[Can you|Could you] [add|sum] {a} and {b}?
[Can you|Could you] [compute|calculate|tell me] {a} [+|plus] {b}?
What is the result of {a} [+|plus] {b}?
Please [add {a} and {b}|work out the sum of {a} and {b}].
! [Tell me|Give me] {a} [+|plus] {b}.
! What do you get for {a} [+|plus] {b}?
! I need the result of {a} [+|plus] {b}.
! [Compute|Calculate] the sum of {a} and {b}.
""")
SUBTRACT = Wordings("""
What is {a} [-|minus] {b}?
{a} [-|minus] {b}
{a} [-|minus] {b}?
{a} - {b} = ?
[Subtract|Take] {b} from {a}.
[Compute|Calculate|Work out] {a} [-|minus] {b}.
How much is {a} [-|minus] {b}?
What [is|do you get for] the difference of {a} and {b}?
[Tell me|Give me|I need] the difference of {a} and {b}.
What do I get [when|if] I [take|subtract] {b} from {a}?
What does {a} [-|minus] {b} [make|give]?
[Can you|Could you] [subtract|take] {b} from {a}?
[Can you|Could you] [compute|calculate|tell me] {a} [-|minus] {b}?
What is the result of {a} [-|minus] {b}?
Please [take {b} from {a}|work out the difference of {a} and {b}].
! [Tell me|Give me] {a} [-|minus] {b}.
! What do you get for {a} [-|minus] {b}?
! I need the result of {a} [-|minus] {b}.
! [Compute|Calculate] the difference of {a} and {b}.
""")
STORY_ADD = Wordings("""
{n} has {a} {i} and [buys|gets|finds] {b} more. How many {i} does {n} have [now|]?
There are {a} {i} in one [room|box] and {b} {i} in another. How many [{i}|] are there in all?
{n} had {a} {i} and then [bought|found|got] {b} more. How many {i} [are there|does {n} have] now?
A shop has {a} {i} and [buys|gets] {b} more. How many {i} [are there|does it have] now?
I [have|had] {a} {i} and [found|bought] {b} more. How many do I have now?
{n} [buys|finds] {a} {i} and had {b} before. How many are there in all?
There were {a} {i}. Then {n} [bought|brought] {b} more. How many [{i}|] are there now?
{n} has {a} {i} and I have {b}. How many [{i}|] do we have in all?
! A shop had {a} {i} and then [got|bought] {b} more. How many are there in all?
! {n} [found|bought] {a} {i} and had {b} before. How many {i} are there now?
! I had {a} {i}. Then I [found|got] {b} more. How many {i} are there now?
""")
STORY_SUBTRACT = Wordings("""
{n} has {a} {i} and [gives away|sells|loses] {b}. How many [{i}|] [are left|does {n} have now|remain]?
There were {a} {i}. {n} [took|sold|lost] {b}. How many [are left|remain]?
A shop has {a} {i}. It sells {b} [of them|]. How many {i} [are left|remain]?
{n} had {a} {i} and [sold|lost|gave away] {b}. How many [are left|remain|does {n} have now]?
I had {a} {i} and [lost|sold] {b}. How many [are left|do I have now]?
[Of|From] {a} {i}, {b} are [sold|lost]. How many [remain|are left]?
There are {a} {i} in a box. {n} takes {b}. How many {i} [are left|remain]?
! A shop has {a} {i} and [sells|loses] {b}. How many {i} [are left|remain]?
! I had {a} {i}. {n} took {b}. How many do I have now?
! There were {a} {i} in a box and {b} are sold. How many [remain|are left]?
""")

# --- units, lists, dates, names ------------------------------------------------------------------------

CONVERT = Wordings("""
Convert {n} {f} to {t}.
How many {t} are {n} {f}?
{n} {f} in {t}
What is {n} {f} in {t}?
{n} {f} = ? {t}
[Give|Show] me {n} {f} in {t}.
[Change|Turn] {n} {f} to {t}.
How much is {n} {f} in [{t}|the unit {t}]?
How many {t} are in {n} {f}?
I have {n} {f}. How many {t} is [that|it]?
How do I [turn|change] {n} {f} into {t}?
! [Convert|Turn|Change] {n} {f} into {t}.
! I have {n} {f}. How much is it in {t}?
""")
SORT = Wordings("""
Sort {l}.
Sort [these numbers|the list|this list]: {l}
Put {l} in order.
Order [these|these numbers]: {l}
[Can you|Could you] put {l} in order?
[Sort|Order] {l} from small to large.
Sort {l}, smallest first.
! Order {l}, smallest first.
! [Can you|Could you] sort {l}?
""")
SORT_DOWN = Wordings("""
Sort {l} from large to small.
Sort {l}, largest first.
Put {l} in falling order.
[Order|Sort] [these|these numbers], largest first: {l}
Order {l} from large to small.
The largest first, please: {l}
! Put {l} in order, largest first.
! Order {l}, largest first.
""")
DATE = Wordings("""
What is the date [today|]?
[What|Which] day is it today?
[What|Which] date is [today|it today]?
What is today's date?
[Tell|Give] me the date [of today|].
Do you know [the|today's] date?
! Tell me today's date.
! [What|Which] date is it?
""")
NAME_IS = Wordings("""
My name is {n}.
I am {n}.
[Hello|Hi], I am {n}.
[Hello|Hi], my name is {n}.
I am called {n}.
You can call me {n}.
! [Hello|Hi], you can call me {n}.
! [Hello|Hi], I am called {n}.
""")
WHO_AM_I = Wordings("""
What is my name?
Who am I?
Do you [remember|know] my name?
Tell me my name.
What am I called?
Do you [remember|know] who I am?
! Do you [remember|know] what I am called?
! Tell me who I am.
""")
MORE = Wordings("""
Add {c} to that.
Plus {c}?
And {c} more?
[Now|Then] add {c}.
And plus {c}?
Add {c} more.
! Now add {c} to that.
! And now plus {c}?
""")
LESS = Wordings("""
Subtract {c} from that.
Minus {c}?
[Now|Then] subtract {c}.
Take {c} from that.
And minus {c}?
Take {c} from it.
! Now take {c} from that.
! And now minus {c}?
""")
REPEAT = Wordings("""
[Repeat|Copy|Echo|Say|Write]: {t}
[Repeat|Say] this: {t}
[Copy|Echo] [this text|the text]: {t}
[Repeat|Copy|Write] the words: {t}
[Say|Write] this again: {t}
Repeat after me: {t}
! [Repeat|Copy] this again: {t}
! [Echo|Copy|Write] this: {t}
! [Say|Echo] the words [again|]: {t}
""")
WORD_LIST = Wordings("""
Make a JSON list of {l}.
Write {l} as a JSON list.
JSON list: {l}
[Give me|I need] {l} as a JSON list.
Put {l} into a JSON list.
[Write|Give me] a JSON list of {l}.
[Write|Make] a JSON list: {l}
{l} as a JSON list[, please|].
Give me a list in JSON: {l}
! I need a JSON list of {l}.
! [Write|Put] {l} into a list in JSON.
""")
UNKNOWN = Wordings("""
What is {s}?
[Tell me|Tell me something|Say something] about {s}.
Explain {s} [to me|].
Do you know {s}?
What do you know about {s}?
I want to [learn|know] [more|something|] about {s}.
Who knows {s}?
[Can|Could] you tell me {s}?
[Can|Could] you explain {s}?
Give me some facts about {s}.
How does {s} work?
[Write|Give me] [a poem|an essay|a text] about {s}.
! What can you tell me about {s}?
! [Can|Could] you say something about {s}?
! Do you know [some facts|more] about {s}?
""")
TWICE = Wordings("""
{0} And {1}?
{0} And the same for {1}.
{0} [Also|And also] for {1}.
{0} And [what about|how about] {1}?
{0} The same for {1}, please.
{0} Then {1}.
! {0} And for {1}?
! {0} And then the same for {1}?
""")

# --- JSON from a sentence ---------------------------------------------------------------------------------

EXTRACT = Wordings("""
Extract {k} as JSON: {s}
Extract {k} as JSON from[ this|]: {s}
Give me JSON with {k}: {s}
[Give me|Write|I need] {k} as JSON[, please|]: {s}
{s} [Write|Extract|I need|Return] {k} as JSON.
Turn this into JSON with [the keys|] {k}: {s}
JSON with [the keys|] {k}[, please|]: {s}
[Return|Write|Make] [a JSON object|JSON] with [the keys|] {k}: {s}
Read this and [return|give me|write] JSON with [the keys|] {k}: {s}
Here is a sentence: {s} [Return|Write|Give me] JSON with {k}.
{s} Turn this into JSON with [the keys|] {k}.
{s} [Answer|Reply] as JSON with {k}.
From this sentence, [extract|write|give me] {k} as JSON: {s}
Find {k} in this sentence and [answer|reply] [in|as] JSON: {s}
{s} Make a JSON object with [the keys|] {k}.
Read this: {s} I need JSON with [the keys|] {k}.
! {s} Give me {k} as JSON.
! [I need|Give me] a JSON object with [the keys|] {k}: {s}
! [Extract|Find] {k} in this sentence as JSON: {s}
! Here is a sentence: {s} Extract {k} as JSON.
! Read this: {s} [Write|Return] {k} as JSON.
""")
PERSON_AGE = Wordings("""
{name} is {age} [years old|] and lives in {city}.
{name} from {city} is {age} [years old|].
In {city} lives {name}, [aged|age] {age}.
{name}, {age}, [lives in|comes from|is from] {city}.
At [the age of|] {age}, {name} moved to {city}.
{name} [lives in|comes from] {city} and is {age} [years old|].
[My friend|My neighbour|Our guest] {name} is {age} and [comes from|is from|lives in] {city}.
{age} years old, {name} lives in {city}.
{city} is the home of {name}, who is {age}.
[Meet|This is] {name}, {age}[ years old|], from {city}.
{name}, who is {age}, moved to {city}.
{name} ({city}) is {age} [years old|].
{name} ({age}) moved to {city}.
Name: {name}, age: {age}, city: {city}.
City: {city}; name: {name}; age: {age}.
! {name} of {city} is {age}[ years old|].
! {name} ({age}) lives in {city}.
! [Meet|This is] {name} from {city}, who is {age}.
""")
PERSON_JOB = Wordings("""
{name} works as a {job} in {city}.
{name} is a {job} [from|in|of] {city}.
The {job} {name} [lives in|comes from|works in] {city}.
{city} has a [new|good] {job}: {name}.
[My friend|Our neighbour] {name} is a {job} and [lives|works] in {city}.
{name} [lives|works] in {city} as a {job}.
{name} moved to {city} and [works as|became] a {job}.
[Meet|This is] {name}, a {job} from {city}.
In {city} [lives|works] the {job} {name}.
A {job} named {name} [lives|works] in {city}.
{name} ({city}) is a {job}.
{name}, who works as a {job}, moved to {city}.
Job: {job}, name: {name}, city: {city}.
Name: {name}; city: {city}; job: {job}.
! {name}, a {job}, [lives|works] in {city}.
! In {city}, {name} works as a {job}.
! [Meet|This is] the {job} {name} from {city}.
""")
PURCHASE = Wordings("""
I [bought|sold|ordered] {quantity} {item} for {price} dollars.
[Please send|We ordered] {quantity} {item}; the price is {price} dollars.
An order of {quantity} {item} costs {price} dollars.
We [need|want] {quantity} {item}. We pay {price} dollars.
{quantity} {item} cost {price} dollars.
The price of {quantity} {item} is {price} dollars.
For {price} dollars [you get|I got|we bought] {quantity} {item}.
[They|We] paid {price} dollars and got {quantity} {item}.
[The|A] shop [sells|sold] {quantity} {item} for {price} dollars.
{price} dollars: that is the price of {quantity} {item}.
{quantity} {item} ({price} dollars) were [sold|ordered].
They want {price} dollars for {quantity} {item}.
Item: {item}, quantity: {quantity}, price: {price} [dollars|].
Price: {price}; quantity: {quantity}; item: {item}.
! [They|We] paid {price} dollars for {quantity} {item}.
! For {price} dollars [they|we] sold {quantity} {item}.
! They ordered {quantity} {item}. The price is {price} dollars.
""")
GATHERING = Wordings("""
The {event} is on {day} in {city}.
On {day} the {event} [takes place|begins] in {city}.
{city} hosts the {event} on {day}.
Come to {city} on {day} for the {event}.
In {city}, the {event} [is|takes place] on {day}.
[Next|This] {day}, [{city} hosts the {event}|there is the {event} in {city}].
We go to {city} for the {event} on {day}.
The {event} [begins|takes place] on {day}. It is in {city}.
On {day} we [go to|meet at] the {event} in {city}.
{day} is the day of the {event} in {city}.
The {event} ({day}) takes place in {city}.
Event: {event}, day: {day}, city: {city}.
City: {city}; day: {day}; event: {event}.
! In {city}, the {event} begins on {day}.
! The {event} in {city} is on {day}.
! Come to the {event} in {city} [this|next] {day}.
""")
STAY = Wordings("""
{guest} [stays in|has] room {room} for {nights} nights.
Room {room} is [booked|taken] for {nights} nights by {guest}.
For {nights} nights, {guest} [has|takes] room {room}.
{guest} takes room {room}, {nights} nights.
{guest}, who has room {room}, stays {nights} nights.
{guest} wants to stay {nights} nights in room {room}.
[The guest|Our guest] {guest} has room {room} for {nights} nights.
{nights} nights in room {room} for {guest}.
In room {room} [stays|is] {guest}, for {nights} nights.
{guest} booked {nights} nights in room {room}.
Give {guest} room {room} for {nights} nights.
{guest} ({nights} nights) has room {room}.
Guest: {guest}, room: {room}, nights: {nights}.
Room: {room}; nights: {nights}; guest: {guest}.
! {guest} booked room {room} for {nights} nights.
! Room {room}: {guest}, {nights} nights.
! Room {room} is for {guest}, who stays {nights} nights.
""")
BELONGING = Wordings("""
The {color} {item} belong to {owner}.
{owner} [owns|has] the {color} {item}.
These {color} {item} are from {owner}.
{owner} [lost|bought|sold] some {color} {item}.
{owner} is the owner of the {color} {item}.
The {item} of {owner} are {color}.
[Give|Bring] the {color} {item} to {owner}.
The {color} {item} are [for|from] {owner}.
Some {color} {item} belong to {owner}.
{owner} has {item} that are {color}.
{color} {item} ({owner}) are on the table.
Owner: {owner}, color: {color}, item: {item}.
Item: {item}; color: {color}; owner: {owner}.
! The owner of the {color} {item} is {owner}.
! These {color} {item} belong to {owner}.
! {owner} bought the {item} that are {color}.
""")

# --- tools: {0}, {1}, {2} are the arguments ---------------------------------------------------------------

WEATHER = Wordings("""
What is the weather [like|] in {0}?
How is the weather in {0}?
[The weather|Weather] in {0}?
Is it [raining|sunny|cold|warm|windy] in {0}?
Do I need [a coat|an umbrella] in {0}?
[Tell me|Give me|Show me] the weather in {0}.
[What about|How about] the weather in {0}?
I [go|travel|fly] to {0}. [What is the weather there|Do I need a coat|Is it raining]?
[Look up|Check] the weather [for|in] {0}.
Will it rain in {0}?
I want to know [the weather in {0}|if it is cold in {0}|whether it is sunny in {0}].
[Can you|Could you] [check|look up|tell me] the weather in {0}?
How [cold|warm] is it in {0}?
! I want to know how the weather is in {0}.
! I [travel|fly] to {0}. How is the weather [there|]?
! Tell me [if|whether] it is [raining|cold] in {0}.
""")
CLOCK = Wordings("""
What time is it in {0} [now|]?
How late is it in {0}?
[The time|Time] in {0}?
[Tell me|Give me|Show me] the [local|] time in {0}.
What is the [local|] time in {0}?
[Can you|Could you] [check|look up|tell me] the time in {0}?
[Check|Look up] the [local|] time [for|in] {0}.
What does the clock say in {0}?
I want to know the time in {0}.
I call someone in {0}. [What|Which] time is it there?
Do you know how late it is in {0}?
[What about|How about] the time in {0}?
Is it late in {0}?
! [Which time is it|What local time is it] in {0}?
! Do you know the time in {0}?
! Tell me [what time|how late] it is in {0}.
""")
MESSAGE = Wordings("""
[Tell|Ask] {0} to {1}.
Send {0} [a message|a text]: {1}
[Message|Write] {0}: {1}
Write to {0}: {1}
Send [a message|a text] to {0}: {1}
[Can you|Could you] [tell|ask] {0} to {1}?
{0} should {1}. [Tell|Ask|Write to] {0}.
I want {0} to {1}. Send a message.
Let {0} know: {1}
Send {0} this [message|text]: {1}
[Please|] write {0} a message: {1}
Remind {0} to {1}.
! [I want you to|You should] tell {0} to {1}.
! Text {0}: {1}
! Send to {0}: {1}
! [Can you|Could you] write to {0}: {1}
""")
ALARM = Wordings("""
Wake me [up|] at {0}.
Set an alarm [for|at] {0}.
[Alarm|An alarm] at {0}[, please|].
I [must|have to|want to] get up at {0}.
Set the alarm to {0}.
[Can you|Could you] [set an alarm for|wake me at] {0}?
I need an alarm [at|for] {0}.
Ring at {0}.
[Get|Wake] me up at {0}[, please|].
My train goes early. Wake me at {0}.
The alarm should ring at {0}.
! I [want to|must] wake up at {0}.
! [Can you|Could you] set the alarm to {0}?
! I have to get up at {0}. Set an alarm.
""")
STOCK = Wordings("""
What is the price of {0} [stock|shares]?
How [is|are] {0} [stock|shares] doing?
Price of {0} [stock|shares]?
Look up [the stock|shares of|] {0} [stock|].
What does [a|one] share of {0} cost?
[Tell me|Give me|Show me] the [price of {0} shares|share price of {0}].
How much [do shares of {0}|does {0} stock] cost?
[Check|Look up] the [stock|share] price of {0}.
[Can you|Could you] [check|look up] {0} [stock|shares]?
What is {0} stock [worth|at]?
I have shares of {0}. What are they worth?
! How much is [one|a] share of {0}?
! [Tell|Show] me the stock price of {0}.
! What [is|are] {0} shares worth?
""")
NOTE = Wordings("""
[Note|A note]: {0}
Remind me to {0}.
Write down: {0}
[Make|Add|Save] a note: {0}
I must not forget to {0}.
[Can you|Could you] [note|write down]: {0}
Note [for me|down]: {0}
I [have to|must|need to] {0}. [Make a note|Write it down].
[Put|Write] this [in my notes|down]: {0}
[New note|Take this note]: {0}
Add to my notes: {0}
Do not let me forget to {0}.
! Take a note: {0}
! [Save|Add] [this|] in my notes: {0}
! [Can you|Could you] remind me to {0}?
""")
ORDER = Wordings("""
Where is [my|] order {0}?
What is the status of [my|] order {0}?
[Look up|Find|Check] order {0}.
[Has|Was] order {0} been sent?
I [wait|am waiting] for order {0}.
[How|What] about order {0}?
Order {0}: [where is it|what is the status]?
[Tell me|Give me|Show me] the status of order {0}.
Is order {0} [sent|paid|packed]?
[Can you|Could you] [find|look up] order {0}?
When does order {0} come?
I want to know where order {0} is.
! [Can you|Could you] check order {0}?
! Tell me [about|where] order {0} [is|].
! [Show|Find] [me|] my order {0}.
""")
SONG = Wordings("""
Play {0}.
[I want|I would like] to hear {0}.
Put on {0}.
Play the song {0}.
[Can|Could] you play {0}?
Start [the song|] {0}.
Let us [hear|listen to] {0}.
I want to listen to {0}.
[Can|Could] you put on [the song|] {0}?
Play me {0} [now|].
Music: {0}
I like the song {0}. Play it.
! Let me hear [the song|] {0}.
! [I want|I would like] to listen to the song {0}.
! Put on the song {0}.
""")
TABLE = Wordings("""
[Book|Reserve] a table for {1} [people|] at {2} for {0}.
{0} needs a table for {1} people at {2}.
[Book|Reserve] a table at {2} for {1} [people|guests], name {0}.
A table for {1} at {2}, please. The name is {0}.
[Book|Reserve] for {0}: {1} people at {2}.
[Can you|Could you] [book|reserve] a table at {2} for {1}? Name: {0}.
I need a table for {1} [people|guests] at {2}. [My name|The name] is {0}.
At {2}, a table for {1} [people|guests], name {0}.
{0} comes at {2} with {1} people. [Book|Reserve] a table.
{1} people want to eat at {2}. Book a table for {0}.
Table for {1}, {2}, name {0}.
We are {1} [people|guests]. [Reserve|Book] a table at {2}, name {0}.
! [Can you|Could you] [book|reserve] a table for {1} people at {2} for {0}?
! {0} needs a table at {2} for {1} [people|guests].
! [Book|Reserve] a table, name {0}, for {1} people at {2}.
""")
LIGHT = Wordings("""
[Turn|Switch] the light in the {0} {1}.
[Turn|Switch] {1} the light in the {0}.
[Light|The light] {1} in the {0}.
Please [turn|switch] {1} the {0} light.
In the {0}, [turn|switch] the light {1}.
[Can you|Could you] [turn|switch] {1} the light in the {0}?
The light in the {0} should be {1}.
I want the light in the {0} {1}.
{0} light {1}.
I am in the {0}. [Turn|Switch] the light {1}.
Set the light in the {0} to {1}.
[Turn|Switch] {1} the light of the {0}.
! [Turn|Switch] the {0} light {1}.
! [Can you|Could you] [turn|switch] the light in the {0} {1}?
! I want the {0} light {1}.
""")
MONEY = Wordings("""
Convert {0} {1} to {2}.
How much is {0} {1} in {2}?
{0} {1} in {2}?
What [are|is] {0} {1} in {2}?
Change {0} {1} to {2}.
[Turn|Exchange] {0} {1} into {2}.
How [much|many] {2} [is|are|do I get for] {0} {1}?
I have {0} {1}. How much is that in {2}?
[Can you|Could you] [convert|exchange] {0} {1} [to|into] {2}?
[Tell me|Show me] {0} {1} in {2}.
What do I get for {0} {1} in {2}?
I want to [change|exchange] {0} {1} [to|into] {2}.
{0} {1} are how many {2}?
! [Convert|Change] {0} {1} into {2}.
! What do I get in {2} for {0} {1}?
! [Can you|Could you] change {0} {1} to {2}?
""")
SEARCH = Wordings("""
Search for {0}.
Find [something|pages|information] about {0}.
Look up {0}.
Search the web for {0}.
Google {0}.
[Can you|Could you] [search for|look up] {0}?
Look for [pages about|] {0} [on the web|online].
What does the web say about {0}?
[Show|Find] me pages [about|on] {0}.
I need [information|pages] [about|on] {0}.
Search [online|the internet] for {0}.
I am looking for [pages|something] [about|on] {0}.
What pages about {0} do you get from the web?
! [Can you|Could you] find [pages|something] about {0}?
! Search [the web|online] for pages about {0}.
! I need something about {0} [from the web|].
""")
TRANSLATE = Wordings("""
Translate [to|into] {1}: {0}
How do you say {0} in {1}?
Say {0} in {1}.
What is {0} in {1}?
[Can you|Could you] translate {0} [to|into] {1}?
Translate {0} [to|into] {1}.
{0} in {1}[, please|]?
What does {0} mean in {1}?
I need {0} in {1}.
How do [I|they] [say|write] {0} in {1}?
How would you write {0} in {1}?
I want this in {1}: {0}
In {1}: {0}
[Write|Give me|Tell me] {0} in {1}.
! How would [you|they] say {0} in {1}?
! [Give me|I need] this in {1}: {0}
! [Can you|Could you] say {0} in {1}?
""")

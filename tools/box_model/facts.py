"""What Pelton's box model knows: facts about Pelton, as grammars of questions and one answer each.

`[a|b|c]` in a question is a choice, `[a|]` may be empty. Each line of questions is one pattern; the
last pattern of every fact (marked "!") is never trained on: it measures wordings that are really new.
Checked against README.md, HACKING.md and docs/glossary.md.
"""

# The first word of a fact is its topic, as the reasoning names it.
FACTS_TEXT = """
= what a Pelton wheel is
[What is|What's|What exactly is] a Pelton wheel?
[Explain|Describe|Define] [what a Pelton wheel is|a Pelton wheel|the Pelton wheel][ please|].
[Tell me|Can you tell me|I want to know] what a Pelton wheel [is|does].
! [Pelton wheel: what is that|How would you describe a Pelton wheel]?
> A Pelton wheel is a water turbine: it turns a jet of water into rotation with hardly any loss. This project is named after it.

= what Pelton is
[What is|What's] Pelton?
[Explain|Describe] [what Pelton is|Pelton|the Pelton project][ briefly|].
[What|Which] [kind of software|kind of program|software] is Pelton?
[What does Pelton do|What is Pelton for|What is Pelton good for|What is Pelton used for]?
! [I have never heard of Pelton. What is it|Give me an overview of Pelton]?
> Pelton is a C++20 inference server for OpenAI's gpt-oss models. It reads a checkpoint, computes it and speaks the OpenAI API.

= the name of Pelton
[Why is|How come] [Pelton|the project] [called|named] [Pelton|that|like that]?
[Where does|Where did] the name Pelton come from?
What is Pelton named after?
! [What is the origin of the name Pelton|What does the name Pelton mean]?
> Pelton is named after the Pelton wheel, a turbine that turns a jet of water into rotation with hardly any loss.

= the language of Pelton
[What|Which] [programming language|language] is Pelton written in?
[What|Which] [programming language|language] does Pelton use?
[Is Pelton written in|Does Pelton use] [C++|Rust|Python|Go]?
! In [what|which] language was Pelton [made|programmed|implemented]?
> Pelton is written in C++20.

= the models that Pelton serves
[What|Which] models [does Pelton serve|can Pelton run|does Pelton support|can Pelton serve|does Pelton run]?
[What|Which] [model family|family of models] [does Pelton support|is Pelton made for]?
[Can Pelton run|Does Pelton support] gpt-oss?
! For [what|which] models was Pelton built?
> Pelton serves the gpt-oss models of OpenAI: gpt-oss-20b, gpt-oss-120b and models of the same form.

= the default port
[What|Which] [port|TCP port] does Pelton [listen on|use|serve on][ by default|]?
[What is|Tell me|What's] the default port[ of Pelton| of the server|]?
On [what|which] port does [Pelton|the server] listen?
! Where does [the server|Pelton] listen if I give no port?
> Pelton listens on port 8000 by default.

= changing the port
How [do I|can I|do you] [change|set|choose] the port[ of the server| of Pelton|]?
[What|Which] flag [sets|changes] the port?
I want [another|a different] port. [How|What do I do]?
! Port 8000 is taken. How do I [use|pick] another one?
> Use the flag --port, for example: pelton serve MODEL --port 9000. PELTON_PORT does the same.

= the default address
[What|Which] address does [Pelton|the server] listen on[ by default|]?
[Is the server|Is Pelton] [reachable|visible] from [the network|other machines][ by default|]?
! [Can other machines reach the server|To which address does the server bind]?
> The server listens on 127.0.0.1 unless told otherwise, so only this machine can reach it.

= the API of Pelton
[What|Which] API does [Pelton|the server] [speak|offer|have|use]?
[Is Pelton|Is the server] compatible with [OpenAI|the OpenAI API|OpenAI clients]?
Can I use [an OpenAI client|the OpenAI client|my OpenAI client][ with Pelton|]?
! [Does my OpenAI program work with Pelton|How do clients talk to Pelton]?
> Pelton speaks the OpenAI API: chat completions, completions and models. Any OpenAI client works with it.

= the base URL
[What|Which] base URL [do I use|do I need|should I set|does my client need]?
[What is|Tell me] the base URL[ of the server| for a client| for OpenAI clients|]?
! Where should I point my OpenAI client?
> The base URL is http://127.0.0.1:8000/v1.

= how to start Pelton
How [do I|can I|do you] [start|run|launch] [Pelton|the server][ quickly|]?
[What|Which] command [starts|runs|launches] [Pelton|the server]?
! [I have just cloned Pelton. What now|What do I type to get Pelton going]?
> Type ./run. It installs what is missing, builds, serves on port 8000 and asks one question.

= how to serve a model
How [do I|can I] serve [a model|my model|my own model|gpt-oss-20b][ with Pelton|]?
[What|Which] [command|verb] serves a model?
! I have a checkpoint. How do I [serve|offer] it over HTTP?
> Use pelton serve MODEL, where MODEL is a folder or a hub id such as openai/gpt-oss-20b.

= how to test Pelton
How [do I|can I|do you] [test Pelton|run the tests|run all tests]?
[What|Which] command runs the tests?
! How do I [check|see] that everything works?
> Type ./test. It builds Pelton and runs every test.

= the long tests
[What does|What is] ./test --full[ do|]?
How [do I|can I] run [the long tests|the full tests|sanitizers and fuzzers]?
! [What|Which] command runs the sanitizers too?
> ./test --full adds real clients, sanitizers, long property runs and fuzzing. It takes hours.

= chatting in the terminal
How [do I|can I] [chat|talk] [in the terminal|on the command line|without a server]?
[What|Which] verb [chats|talks] in the terminal?
[What does|What is] pelton chat[ do|]?
! I [want|would like] to talk to the model in my terminal. How?
> Use pelton chat MODEL: it talks in the terminal, with streaming and dimmed reasoning.

= the verb generate
[What does|What is] [the verb generate|pelton generate][ do|]?
How [do I|can I] continue [a prompt|a text][ with Pelton|]?
! [What|Which] verb continues a prompt?
> pelton generate MODEL continues a prompt, given as text or as token ids.

= the verb logits
[What does|What is] [the verb logits|pelton logits][ do|]?
How [do I|can I] [get|write|see] [the logits|logits][ of a sequence|]?
! [What|Which] verb writes logits to a file?
> pelton logits MODEL writes the logits of a sequence to a .npy file.

= the verb tokenize
[What does|What is] [the verb tokenize|pelton tokenize][ do|]?
How [do I|can I] [turn text into tokens|see the tokens of a text|get token ids]?
! [What|Which] verb shows token ids?
> pelton tokenize MODEL turns text into token ids, and back.

= the verb inspect
[What does|What is] [the verb inspect|pelton inspect][ do|]?
How [do I|can I] [look into a checkpoint|see the shape of a model|list the tensors]?
! [What|Which] verb shows the tensors of a model?
> pelton inspect MODEL shows a model's shape, tensors and bytes.

= the verb synth
[What does|What is] [the verb synth|pelton synth][ do|]?
How [do I|can I] [make|write|create] a [random|synthetic] checkpoint?
! [What|Which] verb makes random weights?
> pelton synth OUT writes a checkpoint with random weights, to measure with.

= how to measure speed
How [do I|can I] [measure|benchmark] [the speed|the speed of Pelton|Pelton|decode speed]?
[What does|What is] pelton bench latency[ do|]?
! [What|Which] verb measures speed?
> Use pelton bench latency MODEL: it measures prefill and decode speed beside the memory's bandwidth.

= the verbs of Pelton
[What|Which] [verbs|commands|subcommands] does Pelton have?
[List|Name|Tell me] the [verbs|commands|subcommands][ of Pelton|].
! What can the pelton binary do?
> The verbs are serve, chat, generate, logits, tokenize, inspect, synth and bench.

= environment variables
[Can|How can] [flags|a flag] be set in the environment?
[What|Which] environment variables does Pelton [read|know]?
! [How do I set a flag without the command line|Does Pelton read the environment]?
> Every flag can be set in the environment: --port is PELTON_PORT.

= exit codes
[What|Which] exit codes does Pelton [have|use|return]?
What do the exit codes mean?
! How do I read the exit code[ of Pelton|]?
> Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 bad configuration, 4 model not found, 5 no memory, 6 address in use.

= exit code 4
[What does|What is] exit code 4[ mean|]?
Why does Pelton [exit with|return] [code 4|4]?
! Pelton ended with code 4. [Why|What now]?
> Exit code 4 means that the model was not found or cannot be read.

= exit code 6
[What does|What is] exit code 6[ mean|]?
Why does Pelton [exit with|return] [code 6|6]?
! Pelton ended with code 6. [Why|What now]?
> Exit code 6 means that the address is in use. Choose another port.

= the licence
[What is|What's] the [licence|license][ of Pelton|]?
[What|Which] [licence|license] does Pelton [have|use]?
Under [what|which] [licence|license] is Pelton?
! [May I use Pelton at work|Is Pelton free software]?
> Pelton is under the Apache 2.0 licence.

= memory for gpt-oss-20b
How much [memory|RAM] does gpt-oss-20b [need|take]?
How much [memory|RAM] [do I need|is needed] for gpt-oss-20b?
! [Do I have enough memory for gpt-oss-20b|What machine does gpt-oss-20b need]?
> gpt-oss-20b needs about 16 GiB of memory. Keys and values of running conversations come on top.

= the download size
How [big|large] is [gpt-oss-20b|the gpt-oss-20b download|the checkpoint of gpt-oss-20b]?
[What is|Tell me] the size of [gpt-oss-20b|the gpt-oss-20b download]?
! How [many bytes|much disk] does gpt-oss-20b take?
> The checkpoint of gpt-oss-20b has about 13 GB.

= how to get gpt-oss-20b
How [do I|can I] [get|download|fetch] gpt-oss-20b?
Where [do I|can I] [get|download|find] gpt-oss-20b?
! Where do the weights of gpt-oss-20b come from?
> Type: hf download openai/gpt-oss-20b. Pelton looks in the standard Hugging Face cache.

= GPUs
[Does|Can] Pelton [use|run on|support|need] [a GPU|GPUs|CUDA|a graphics card]?
[Do I need|Is there support for] [a GPU|GPUs|CUDA|a graphics card]?
! Is a GPU of any use here?
> Today Pelton computes on the CPU only, with AVX-512 or AVX2 where they are found.

= the CPU instructions
[What|Which] [CPU instructions|vector instructions|instruction sets] does Pelton use?
Does Pelton use AVX-512?
! How does Pelton make use of my CPU?
> Pelton uses AVX-512 and AVX2 where they are found, else plain C++.

= TLS
[Does|Can] [Pelton|the server] [speak|use|offer|have] [TLS|HTTPS|encryption]?
Is there [TLS|HTTPS]?
! Is the traffic to the server encrypted?
> The server has no TLS. Put a proxy in front of it if you need encryption.

= API keys
[Does|Can] [Pelton|the server] [ask for|check|use] [an API key|API keys]?
How [do I|can I] [set|require|use] an API key?
! How do I keep strangers [out|off my server]?
> Start the server with --api-key: then callers must send that key.

= the reasoning efforts
[What|Which] [reasoning efforts|efforts|reasoning levels] are there?
[What is|Explain] [reasoning_effort|the reasoning effort][ please|].
How [do I|can I] [set|change|choose] the reasoning effort?
! Can I make the model think [more|less|longer]?
> reasoning_effort may be low, medium or high. Medium is the default.

= the field of reasoning
[Where|In which field] [is the reasoning|does the reasoning come|do I find the reasoning]?
[What is|Explain] reasoning_content[ please|].
! How does a client see what the model thought?
> Reasoning comes in the field reasoning_content of the message; --reasoning-field renames it.

= rooms
[What is|What's] a room[ in Pelton|]?
[Explain|Define|Describe] [rooms|the rooms|a room][ of Pelton| in Pelton|].
! How is the source code [organised|divided]?
> A room is a folder in src, a namespace and a CMake target, with a README.

= the list of rooms
[Where|In which file] are the rooms listed?
[What is|Explain] rooms.txt[ please|].
! Where is it written who may include whom?
> src/rooms.txt lists the rooms from bottom to top and says who may include whom.

= the engine
[What does|What is] the engine[ do|]?
[Explain|Describe] the [engine|engine room][ please|].
! [What|Which] part decides which tokens run next?
> The engine decides which tokens run next. It knows no text and no JSON, only tokens.

= the executor
[What does|What is] [the executor|an executor][ do|]?
[Explain|Describe] the executor[ please|].
! [What|Which] part carries out a step plan?
> An executor carries out a step plan: on the CPU, or modelled for tests.

= a step
[What is|What's] a step[ in the engine| in Pelton|]?
[Explain|Define] [a step|the word step][ please|].
! What happens in one step?
> A step is one pass through the model for some tokens of some sequences.

= a step plan
[What is|What's] a step plan?
[Explain|Define] [a step plan|the step plan][ please|].
! What does the scheduler write?
> A step plan says what one step computes. The scheduler writes it.

= prefill
[What is|What's|What does] prefill[ mean|]?
[Explain|Define] [prefill|the word prefill][ please|].
! What is done with a prompt first?
> Prefill is computing the tokens of a prompt.

= decode
[What is|What's|What does] decode[ mean|]?
[Explain|Define] [decode|the word decode][ please|].
! What is the phase called that makes new tokens?
> Decode is computing one new token of a sequence.

= preemption
[What is|What's|What does] preemption[ mean|]?
[Explain|Define] preemption[ please|].
! What happens when no block is free?
> In preemption a running sequence gives its blocks back and is computed again later.

= a block
[What is|What's] a block[ of the KV cache|]?
[How many tokens are in a block|How big is a block]?
! In which unit is the KV cache given out?
> A block holds the keys and values of 16 tokens. It is the unit of the KV cache.

= the KV cache
[What is|What's] [the KV cache|a KV cache]?
[Explain|Describe] the KV cache[ please|].
! Where are keys and values kept?
> The KV cache keeps the keys and values of past tokens, in blocks of 16 tokens, as float16.

= the sliding window
[What is|What's] [the sliding window|a sliding window]?
[How big|How large|How long] is the sliding window?
[Explain|Describe] the sliding window[ please|].
! How far back do the window layers look?
> In half of the layers a token sees only the last 128 tokens: that is the sliding window.

= attention sinks
[What is|What's] an attention sink?
[What are|Explain] attention sinks[ please|].
! How can a head look at nothing?
> An attention sink is a learned number per head in the softmax; it lets a head look at nothing.

= MXFP4
[What is|What's] MXFP4?
[Explain|Describe|Define] [MXFP4|the MXFP4 format][ please|].
How are the experts stored?
! How many bits does a weight of an expert take?
> MXFP4 stores 32 four-bit floats with one shared eight-bit exponent. The experts of gpt-oss use it.

= experts
[What is|What's] an expert?
[What are|Explain] [the experts|experts|mixture of experts][ please|].
! Why does gpt-oss compute so little per token?
> An expert is one of many small networks in a layer; a router chooses the best few for each token.

= YaRN
[What is|What's] YaRN?
[Explain|Describe|Define] YaRN[ please|].
! How does gpt-oss reach long contexts?
> YaRN stretches rotary position embeddings from 4096 to 131072 tokens.

= Harmony
[What is|What's] [Harmony|the Harmony format]?
[Explain|Describe|Define] [Harmony|the Harmony format][ please|].
! [What|Which] format do gpt-oss conversations have?
> Harmony is the format of gpt-oss conversations, with channels for reasoning, tool calls and answers.

= the channels
[What|Which] [channels|Harmony channels] are there?
[What is|Explain] a channel[ in Harmony|][ please|].
! Where do reasoning and answers go in Harmony?
> The channels are analysis for reasoning, commentary for tool calls and final for the answer.

= control tokens
[What is|What's] a control token?
[What are|Explain] control tokens[ please|].
! Can a user's text open a message?
> A control token structures a conversation. A user's text never becomes one.

= golden data
[What is|What are] [golden data|golden tests|the golden models]?
[Explain|Describe] the golden [data|tests|models][ please|].
! What are exact results compared with?
> Golden results were computed once in float64 by an independent program; tests compare with them.

= reference kernels
[What are|Explain|Describe] [the reference kernels|reference kernels][ please|].
[What is|What's] a reference kernel?
! What are the fast kernels tested against?
> The reference kernels are plain float32 arithmetic. The fast kernels are tested against them.

= batch invariance
[What is|What's|What does] batch invariance[ mean|]?
[Explain|Define] batch invariance[ please|].
! Does an answer depend on other requests?
> Batch invariance: a row's result does not depend on the other rows of its step, nor on threads.

= a full queue
What happens when [the queue|the inbox] is full?
[When|Why] do I get [error 429|a 429|status 429]?
! What does the server say under too much load?
> When the inbox is full the server answers 429. Try again a little later.

= the inbox
[What is|What's] the inbox?
[Explain|Describe] the inbox[ please|].
! What stands between server and engine?
> The inbox is the bounded queue between server and engine.

= checkpoints
[What is|What's] a checkpoint?
[What|Which] files [does a checkpoint have|are in a checkpoint]?
! What does a model folder contain?
> A checkpoint is a model's files: config.json, safetensors files and tokenizer.json.

= the glossary
Where are [the words|words] explained?
Is there a [glossary|list of words]?
! Where do I look up a word?
> The words are explained in docs/glossary.md.

= the tour of the code
Where [do I|should I] [begin|start] [reading|reading the code|with the code]?
[What|Which] file is the tour of the code?
! How do I get to know the source?
> HACKING.md is the tour of the code; begin with docs/way_of_a_request.md.

= the compiler
[What|Which] compiler does Pelton need?
[What|Which] version of g++ [do I need|does Pelton need]?
! Can I build Pelton with g++ 12?
> Pelton needs a C++20 compiler; g++ 12 is supported.

= the operating system
[What|Which] [operating system|system|Linux] does Pelton [need|run on]?
Does Pelton run on [Debian|Linux]?
! On which machine can I install Pelton?
> Pelton runs on Linux; the scripts are made for Debian 12.

= exceptions
Does Pelton [use|throw] exceptions?
How does Pelton handle errors?
! How do errors travel through the code?
> Pelton does not throw. Expected failures are a Result and travel with TRY; a bug is a CHECK.

= streaming
[Does|Can] [Pelton|the server] stream[ answers| tokens|]?
How [do I|can I] [stream|get a stream][ an answer|]?
! Can I see the answer while it is made?
> Yes. Send "stream": true and the answer arrives piece by piece.

= the box model
[What is|What's] [the box model|the model in the box|pelton-box]?
[Explain|Describe] [the box model|the model in the box][ please|].
! [What|Which] model ships with Pelton?
> The box model is a tiny gpt-oss that ships with Pelton. It was trained by this project on generated text.

= who I am
Who are you?
[What are you|What is your name|Introduce yourself|Tell me about yourself].
[Are you|So you are] [ChatGPT|a human|a robot|a person|an AI]?
! [With whom am I talking|What should I call you]?
> I am the model in Pelton's box: a tiny gpt-oss that knows a little about Pelton.

= what I can do
What can you do?
[How can you help|What are you good at|What do you know|Can you help me]?
! [What should I ask you|Which questions can you answer]?
> I can answer questions about Pelton, add and subtract, convert units, sort numbers, fill in JSON and call tools.

= how I was trained
[How were you|Who] [trained|made you|built you]?
[Where|When] were you trained?
! Where does your knowledge come from?
> I was trained by the Pelton project, on one CPU core in about an hour, with text that it generated.

= my size
How [big|large] are you?
How many parameters do you have?
! Are you a big model?
> I have about five million parameters. That is very small.
"""

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


class Fact:
    def __init__(self, topic, answer):
        self.topic, self.answer = topic, answer
        self.patterns, self.held_out = [], []


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
    return [" ".join(t.split()) for t in texts]


def parse(text):
    facts = []
    for line in text.strip().splitlines():
        line = line.strip()
        if line.startswith("= "):
            facts.append(Fact(line[2:], None))
        elif line.startswith("> "):
            facts[-1].answer = line[2:]
        elif line.startswith("! "):
            facts[-1].held_out += expand(line[2:])
        elif line:
            facts[-1].patterns += expand(line)
    return facts


FACTS = parse(FACTS_TEXT)
SMALL_TALK = parse(SMALL_TALK_TEXT)

"""A conversation -> Harmony, exactly as src/chat and src/server render it.

The result is a list of pieces: a str is ordinary text and is encoded on its own; a Control is one
token. `trained` says whether the model is to sample the piece. render_check compares with the C++.
"""
import json


class Control(str):
    pass


START, MESSAGE, CHANNEL = Control("<|start|>"), Control("<|message|>"), Control("<|channel|>")
CONSTRAIN, END, CALL, RETURN = Control("<|constrain|>"), Control("<|end|>"), Control("<|call|>"), Control("<|return|>")


def type_text(schema, indent):
    kind = schema.get("type")
    if kind == "object":
        out = "{\n"
        required = schema.get("required", [])
        for name, value in schema.get("properties", {}).items():
            if "description" in value:
                out += indent + "// " + value["description"] + "\n"
            mark = "" if name in required else "?"
            out += indent + name + mark + ": " + type_text(value, indent + "    ") + ",\n"
        return out + indent + "}"
    if kind == "string":
        return " | ".join('"%s"' % v for v in schema["enum"]) if "enum" in schema else "string"
    if kind in ("number", "integer"):
        return "number"
    if kind == "boolean":
        return "boolean"
    if kind == "array":
        return type_text(schema["items"], indent) + "[]" if "items" in schema else "Array<any>"
    return "any"


def tools_text(tools):
    out = "# Tools\n\n## functions\n\nnamespace functions {\n\n"
    for tool in tools:
        if tool.get("description"):
            out += "".join("// %s\n" % line for line in tool["description"].split("\n"))
        parameters = tool.get("parameters")
        out += "type %s = (%s) => any;\n\n" % (
            tool["name"], "_: " + type_text(parameters, "") if parameters else "")
    return out + "} // namespace functions"


def system_text(conversation):
    text = ("You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
            "Current date: " + conversation["date"] + "\n\nReasoning: " + conversation["effort"] +
            "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.")
    if conversation["tools"]:
        text += "\nCalls to these tools must go to the commentary channel: 'functions'."
    return text


def developer_text(conversation):
    parts = []
    if conversation["instructions"]:
        parts.append("# Instructions\n\n" + conversation["instructions"])
    if conversation["tools"]:
        parts.append(tools_text(conversation["tools"]))
    return "\n\n".join(parts)


class Rendering:
    def __init__(self):
        self.pieces, self.trained = [], []

    def add(self, trained, *pieces):
        for piece in pieces:
            self.pieces.append(piece)
            self.trained.append(trained)


def render_prefix(conversation):
    """The system message: a batch shares it among conversations."""
    out = Rendering()
    out.add(False, START, "system", MESSAGE, system_text(conversation), END)
    return out


def add_assistant(out, message, sampled):
    """`sampled`: the model is trained on it, and a final one ends in <|return|>."""
    first = True
    parts = []
    if message.get("reasoning"):
        parts.append((CHANNEL, "analysis", MESSAGE, message["reasoning"], END))
    if message.get("call"):
        name, arguments = message["call"]
        parts.append((" to=functions." + name, CHANNEL, "commentary", " ", CONSTRAIN, "json", MESSAGE, arguments, CALL))
    elif message.get("content") is not None:
        parts.append((CHANNEL, "final", MESSAGE, message["content"], RETURN if sampled else END))
    for part in parts:
        out.add(sampled and not first, START, "assistant")
        out.add(sampled, *part)
        first = False


def last_final(messages):
    finals = [i for i, m in enumerate(messages) if m["role"] == "assistant" and not m.get("call")]
    return finals[-1] if finals else -1


def render_rest(conversation):
    """Everything behind the system message; assistant messages marked "train" are sampled."""
    out = Rendering()
    developer = developer_text(conversation)
    if developer:
        out.add(False, START, "developer", MESSAGE, developer, END)
    messages = conversation["messages"]
    dropped_before = last_final([m for m in messages if not m.get("train")])
    for i, message in enumerate(messages):
        role = message["role"]
        if role == "user":
            out.add(False, START, "user", MESSAGE, message["content"], END)
        elif role == "tool":
            out.add(False, START, "functions." + message["name"], " to=assistant", CHANNEL, "commentary", MESSAGE,
                    message["content"], END)
        else:
            shown = message if i > dropped_before or message.get("train") else {**message, "reasoning": None}
            add_assistant(out, shown, bool(message.get("train")))
    return out


def render_prompt(conversation):
    """Up to the first sampled message, ending in <|start|>assistant."""
    first = next(i for i, m in enumerate(conversation["messages"]) if m.get("train"))
    cut = {**conversation, "messages": conversation["messages"][:first]}
    pieces = render_prefix(cut).pieces + render_rest(cut).pieces
    return pieces + [START, "assistant"]


def to_request(conversation):
    """The body of POST /v1/chat/completions with the same prompt."""
    first = next(i for i, m in enumerate(conversation["messages"]) if m.get("train"))
    messages, call_count, last_ids = [], 0, []
    if conversation["instructions"]:
        messages.append({"role": "system", "content": conversation["instructions"]})
    for message in conversation["messages"][:first]:
        if message["role"] == "assistant":
            out = {"role": "assistant"}
            if message.get("reasoning"):
                out["reasoning_content"] = message["reasoning"]
            if message.get("call"):
                call_count += 1
                last_ids.append("call_%d" % call_count)
                out["tool_calls"] = [{"id": last_ids[-1], "type": "function", "function": {
                    "name": message["call"][0], "arguments": message["call"][1]}}]
            else:
                out["content"] = message["content"]
            messages.append(out)
        elif message["role"] == "tool":
            messages.append({"role": "tool", "tool_call_id": last_ids[-1], "content": message["content"]})
        else:
            messages.append({"role": "user", "content": message["content"]})
    body = {"messages": messages, "reasoning_effort": conversation["effort"]}
    if conversation["tools"]:
        body["tools"] = [{"type": "function", "function": t} for t in conversation["tools"]]
    return body


def as_text(pieces):
    return "".join(pieces)


def compact(value):
    return json.dumps(value, ensure_ascii=False)

"""Is an answer right? An answer is {content, reasoning, call: (name, arguments text) or None}."""
import json
import re


def parsed(text):
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def is_right(conversation, answer, date):
    """Each `score` of tasks.py has one meaning."""
    score, content = conversation["score"], answer["content"] or ""
    if "call" in score:
        name, arguments = score["call"]
        return answer["call"] is not None and answer["call"][0] == name and parsed(answer["call"][1]) == arguments
    if answer["call"] is not None:
        return False
    if "final" in score:  # word for word
        return content == score["final"]
    if "number" in score:  # the last number of the answer
        numbers = re.findall(r"-?\d+", content)
        return bool(numbers) and int(numbers[-1]) == score["number"]
    if "json" in score:  # the same keys and values, and nothing besides
        return parsed(content) == score["json"]
    return content == "Today is %s." % date

"""Requests that must be refused: (bytes sent, statuses that are right). Rows of the catalogue of bad inputs,
named as there: HT bytes of HTTP, JB bodies, AP parameters, JS formats.

An empty set of statuses: the connection may also just end.
"""
import json

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
BAD = {400}


def post(path, body, *headers):
    body = body if isinstance(body, bytes) else body.encode()
    head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, *headers, "", ""]).encode() + body


def raw(*lines):
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chat(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "say for 1 0 2 "}], **fields})


def text(**fields):
    return json.dumps({"prompt": "text for 1 0 2 ", "max_tokens": 20, **fields})


def schema(value):
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": value}})


def http_rows():
    get = "GET /health HTTP/1.1"
    start = f"POST {CHAT} HTTP/1.1"
    return [
        ("HT-01", raw("GET /" + "a" * 100_000 + " HTTP/1.1", "Host: localhost"), {414}),
        ("HT-02", raw(get, "Host: localhost", "X: " + "a" * 200_000), {431}),
        ("HT-02", raw(get, "Host: localhost", *[f"X-{i}: 1" for i in range(2000)]), {431}),
        *[("HT-05", raw(start, "Host: localhost", f"Content-Length: {n}"), BAD) for n in ("-1", "+5", "5.0", "x", "")],
        ("HT-05", raw(start, "Host: localhost", "Content-Length: 2", "Content-Length: 3") + b"{}", BAD),
        ("HT-05", raw(start, "Host: localhost", "Content-Length: 18446744073709551616"), {400, 413}),
        ("HT-06", raw(start, "Host: localhost", "Content-Length: 2", "Transfer-Encoding: chunked") + b"0\r\n\r\n", BAD),
        *[("HT-07", raw(start, "Host: localhost", f"Transfer-Encoding: {coding}"), {400, 501})
          for coding in ("xchunked", "chunked, identity", "gzip, chunked", "\tchunked\x0b")],
        *[("HT-08", raw(start, "Host: localhost", "Transfer-Encoding: chunked") + size + b"\r\nab\r\n0\r\n\r\n", {400, 413})
          for size in (b"-2", b"0x2", b"11111111111111111", b"2;" + b"a" * 100_000, b"")],
        ("HT-10", b"GET /health HTTP/1.1\nHost: localhost\n\n", BAD),
        ("HT-10", raw(get, "Host : x"), BAD),
        ("HT-10", raw(get, "Host: localhost", "A: b\0c"), BAD),
        ("HT-10", raw(get, "Host: localhost", " folded: y"), BAD),
        ("HT-11", raw(get, "Host: localhost", "Host: y"), BAD),
        ("HT-11", raw(get), BAD),
        *[("HT-11", raw(f"GET {path} HTTP/1.1", "Host: localhost"), {400, 404})
          for path in ("/v1/../debug/ledger", "/%2e%2e/x", "//", "/health%00", "/v1/models/..%2f", "/nowhere", "/%zz")],
        ("HT-12", raw("FOO /health HTTP/1.1", "Host: localhost"), {400, 405, 501}),
        ("HT-12", raw("A" * 8192 + " / HTTP/1.1", "Host: localhost"), {400, 405, 414, 501}),
        ("HT-12", raw(f"GET {CHAT} HTTP/1.1", "Host: localhost"), {405}),
        ("HT-12", raw("GET /health HTTP/9.9", "Host: localhost"), {400, 505}),
        ("HT-15", post(CHAT, b"\x1f\x8b", "Content-Encoding: gzip"), {415, 400}),
        ("HT-19", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), set()),
        ("HT-19", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", set()),
        ("HT", b"\0" * 300 + b"\r\n\r\n", set()),
        ("WS-01", raw("GET /v1/responses HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"), {400, 426}),
    ]


def body_rows():
    deep = "[" * 100_000
    bodies = ["", "[]", '"x"', "null", "{", '{"messages":[],}', "{}{}", deep, '{"messages":' + deep,
              '{"messages": [{"role": "user", "content": "\\ud800"}]}', "\ufeff{}", '{"a": 01}', '{"a": NaN}',
              '{"messages":{}}', '{"messages":[]}', '{"messages":[{"role":"root","content":"x"}]}',
              chat(stream="yes"), chat(model=7), chat(n=0), chat(n=1_000_000), chat(temperature=-1),
              chat(top_p=7), chat(max_completion_tokens=-2), chat(max_completion_tokens=10**9), chat(seed="x"),
              chat(logit_bias={"-1": 5}), chat(stop=["x"] * 1000), chat(top_logprobs=99, logprobs=True),
              chat(tools=[{"type": "function"}]), chat(tools=7), chat(tool_choice={"type": "function"}),
              chat(response_format={"type": "riddle"}), schema({"type": "king"}), schema({"pattern": "("}),
              schema({"type": "string", "pattern": "(a+)+\\1"}), schema({"$ref": "http://x/y"}),
              chat(structured_outputs={"regex": "((("}), chat(structured_outputs={"grammar": "root ::= ("}),
              chat(priority="high"), chat(cache_salt=7), chat(messages=[{"role": "user", "content": "a" * 600_000}]),
              chat(messages=[{"role": "tool", "content": "x"}])]
    rows = [("JB/AP/JS", post(CHAT, body), BAD) for body in bodies]
    rows += [("JB-08", post(CHAT, b'{"messages":[{"role":"user","content":"\xff\xfe"}]}'), BAD)]
    rows += [("AP-03", post(CHAT, chat(model="nobody")), {404})]
    rows += [("AP", post(TEXT, body), BAD) for body in (
        text(prompt=""), text(prompt=[]), text(prompt=[[]]), text(prompt=[-1]), text(prompt=[2**31]),
        text(prompt=[1.5]), text(prompt=["x"] * 1025), text(n=3, best_of=2), text(min_tokens=10**9),
        text(stop_token_ids=[-1]), text(suffix="x"), text(logprobs=99))]
    rows += [("AP", post("/v1/embeddings", json.dumps({"input": value})), BAD)
             for value in ([], [[]], [-1], [[2**31]], 7, ["x"] * 3000)]
    rows += [("AP", post(MESSAGES, json.dumps(value)), BAD) for value in (
        {}, {"messages": []}, {"model": "x", "max_tokens": 0, "messages": [{"role": "user", "content": "x"}]},
        {"max_tokens": 5, "messages": [{"role": "king", "content": "x"}]})]
    rows += [("AP", post(RESPONSES, json.dumps(value)), BAD) for value in (
        {}, {"input": []}, {"input": 7}, {"input": "x", "background": True, "store": False}, {"input": [{"type": "smell"}]})]
    rows += [("AP", post(RESPONSES, json.dumps({"input": "x", "previous_response_id": "resp_x"})), {400, 404})]
    rows += [("AP", post("/detokenize", json.dumps({"tokens": [2**40]})), BAD),
             ("AP", post("/tokenize", json.dumps({"prompt": 7})), BAD)]
    return rows


WEBSOCKET_FRAMES = [  # behind a good handshake: the connection closes with 1002, 1007 or 1009
    b"\x81\x05hello", b"\xc1\x80\0\0\0\0", b"\x83\x80\0\0\0\0", b"\x09\x80\0\0\0\0", b"\x80\x80\0\0\0\0",
    b"\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0", b"\x81\x82\0\0\0\0\xff\xfe", b"\x88\x81\0\0\0\0\x01",
    b"\x88\x82\0\0\0\0\x03\xed", b"\x01\x80\0\0\0\0" * 5000]
WEBSOCKET_MESSAGES = ["", "{", "[]", '{"type":"response.sing"}', '{"type":"response.cancel"}',
                      '{"type":"response.create","input":[]}', '{"type":"response.create","input":"x","model":"y"}',
                      '{"type":"response.create","input":"x","temperature":9}', "[" * 50_000]
GRPC_BYTES = [b"GET / HTTP/1.1\r\n\r\n", bytes(200), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
              b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\1\1\4\0\0\0\1\xff"]

#!/usr/bin/env python3
"""A model of another family is served with its own chat format: its vocabulary's, or a template's, with thinking and
calls; and one without a tokenizer by token ids.

usage: chat_formats_test.py BINARY
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

BINARY = None
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Served:
    def __init__(self, test, folder, *flags):
        flags = flags or ("--max-model-len", "512")
        self.process = subprocess.Popen([BINARY, "serve", folder, "--port", "0", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def end():
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        test.addCleanup(end)
        line = self.process.stdout.readline()
        test.assertTrue(line.startswith("listening on "), line)
        self.port = int(line.rsplit(":", 1)[1])

    def post(self, path, body):
        """Status and JSON."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


# Of our own, with what published ones do.
TEMPLATE = """{%- if tools %}
<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{{ teaches }}<|im_end|>
{% endif %}
{% for m in messages %}
{% if m.content == 'refuse' %}{{ raise_exception('this template takes no refusals') }}{% endif %}
<|im_start|>{{ m.role }}
{{ m.content if m.content is not none }}{% for call in m.tool_calls or [] %}[{{ call.function.name }}]{% endfor %}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is not defined or enable_thinking %}<think>
{% endif %}{% endif %}"""
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
# What the model writes, by the words that teach it in the template; each is one call.
CALLS = {
    "<tool_call>": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ulm"}}\n</tool_call>',
    "<function= <parameter=": "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n"
                              "</tool_call>",
    "<|python_tag|>": '{"name": "get_weather", "parameters": {"city": "Ulm"}}',
    "[TOOL_CALLS]": '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Ulm"}}]',
    "[TOOL_CALLS][ARGS]": '[TOOL_CALLS]get_weather[ARGS]{"city": "Ulm"}',
}

CHAT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "max_tokens": 5}


class ChatFormats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name) / "qwen3"
        subprocess.run([BINARY, "synth", "--like", "qwen3-0.6b", "--layers", "1", cls.folder], check=True,
                       capture_output=True, timeout=200)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_the_vocabulary_chooses_chatml(self):
        served = Served(self, self.folder)
        status, rendered = served.post("/v1/chat/completions/render", CHAT)
        self.assertEqual(200, status, rendered)
        self.assertIn("<|im_start|>system\\nBe brief.<|im_end|>\\n<|im_start|>user\\nhello<|im_end|>\\n"
                      "<|im_start|>assistant\\n", json.dumps(rendered, ensure_ascii=False))
        status, answer = served.post("/v1/chat/completions", CHAT)
        self.assertEqual(200, status, answer)
        self.assertIn(answer["choices"][0]["finish_reason"], ("length", "stop"))
        self.assertGreater(answer["usage"]["completion_tokens"], 0)
        status, answer = served.post("/v1/responses", {"input": "hello", "max_output_tokens": 5})
        self.assertEqual(200, status, answer)

    def test_a_gguf_file_chats_as_the_folder_of_its_shape(self):
        shape = pathlib.Path(self.scratch.name) / "llama.json"
        shape.write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
            "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
            "vocab_size": 512, "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "bos_token_id": 1, "eos_token_id": 2}))
        prompts = []
        for name, flags in (("llama", []), ("llama.gguf", ["--format", "gguf"])):
            model = pathlib.Path(self.scratch.name) / name
            subprocess.run([BINARY, "synth", "--like", shape, *flags, model], check=True, capture_output=True, timeout=200)
            status, rendered = Served(self, model).post("/v1/chat/completions/render", CHAT)
            self.assertEqual(200, status, rendered)
            prompts.append((rendered["prompt"], rendered["token_ids"]))
        self.assertEqual(*prompts)
        self.assertIn("Be brief.", prompts[0][0])

    def with_template(self, text, then, *flags):
        """Served by a script that writes `then`, with a chat template of that text in the folder."""
        template = self.folder / "chat_template.jinja"
        template.write_text(text)
        self.addCleanup(template.unlink, missing_ok=True)
        script = pathlib.Path(self.scratch.name) / "script.json"
        script.write_text(json.dumps({"rules": [{"when": "", "then": then}]}))
        return Served(self, self.folder, "--executor", f"modelled:{script}", *flags)

    def test_a_template_writes_the_prompt(self):
        served = self.with_template(TEMPLATE, "I add.\n</think>\n\n4<|im_end|>")
        status, rendered = served.post("/v1/chat/completions/render", CHAT)
        self.assertEqual(200, status, rendered)
        self.assertIn("<|im_start|>user\\nhello<|im_end|>\\n<|im_start|>assistant\\n<think>\\n", json.dumps(rendered))
        status, answer = served.post("/v1/chat/completions", CHAT | {"max_tokens": 100})
        self.assertEqual(200, status, answer)
        message = answer["choices"][0]["message"]
        self.assertEqual(("I add.", "4"), (message["reasoning_content"], message["content"]))
        self.assertGreater(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
        body = {"messages": [{"role": "user", "content": "refuse"}]}
        status, answer = served.post("/v1/chat/completions", body)
        self.assertEqual(400, status, answer)
        self.assertIn("this template takes no refusals", answer["error"]["message"])
        status, rendered = served.post("/v1/chat/completions/render", CHAT | {
            "chat_template_kwargs": {"enable_thinking": False}})
        self.assertNotIn("<think>", json.dumps(rendered))
        status, rendered = served.post("/v1/chat/completions/render", {
            "messages": [{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, two,"}],
            "continue_final_message": True, "add_generation_prompt": False})
        self.assertEqual(200, status, rendered)
        self.assertTrue(rendered["prompt"].endswith("one, two,") if "prompt" in rendered else
                        "one, two," in json.dumps(rendered), rendered)

    def test_what_a_template_does_not_name_is_a_warning(self):
        served = self.with_template("{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>", "yes<|im_end|>")
        body = CHAT | {"tools": [WEATHER], "reasoning_effort": "low"}
        request = urllib.request.Request(f"http://127.0.0.1:{served.port}/v1/chat/completions", data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            warnings = " ".join(answer.headers.get_all("x-pelton-warning", []))
        self.assertIn("tools ignored", warnings)
        self.assertIn("reasoning_effort ignored", warnings)

    def test_a_long_template_does_not_hold_up_others(self):
        """One runs to its limit of steps; a thread of the network answers others meanwhile."""
        loops = "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3
        served = self.with_template("{% if messages[0].content == 'long' %}" + loops + "{% endif %}<|im_start|>", "yes<|im_end|>",
                                    "--http-threads", "1")
        statuses = []
        thread = threading.Thread(target=lambda: statuses.append(served.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "long"}]})))
        thread.start()
        answered = 0
        while thread.is_alive():
            with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/health", timeout=60) as answer:
                self.assertEqual(200, answer.status)
            answered += thread.is_alive()
        thread.join()
        self.assertEqual(400, statuses[0][0], statuses)
        self.assertIn("more than", json.dumps(statuses[0][1]))
        self.assertGreater(answered, 2, "asked and answered while the template ran")

    def test_an_empty_template_is_refused(self):
        empty = pathlib.Path(self.scratch.name) / "empty.jinja"
        empty.write_text("")
        for given in ("", str(empty)):
            done = subprocess.run([BINARY, "serve", self.folder, "--port", "0", "--chat-template", given],
                                  capture_output=True, text=True, timeout=120)
            self.assertNotEqual(0, done.returncode, given)
            self.assertIn("--chat-template", done.stderr)

    def test_each_family_chats_from_files_of_our_own(self):
        turns = {"llama3": "<|start_header_id|>user<|end_header_id|>", "mistral": "[INST]", "mixtral": "[INST]",
                 "gemma3": "<start_of_turn>user", "deepseek-v3": "<｜User｜>", "granite": "user: hello"}
        for name, turn in turns.items():
            with self.subTest(name):
                folder = pathlib.Path(self.scratch.name) / name
                subprocess.run([BINARY, "synth", "--like", ROOT / f"testdata/golden/{name}/config.json", folder],
                               check=True, capture_output=True, timeout=200)
                done = subprocess.run([BINARY, "inspect", folder], capture_output=True, text=True, timeout=120)
                self.assertIn("chat format       template of ", done.stdout)
                self.assertRegex(done.stdout, "template uses     variables: .*messages.*; statements: .*for")
                done = subprocess.run([BINARY, "inspect", folder, "--json"], capture_output=True, text=True, timeout=120)
                described = json.loads(done.stdout)
                self.assertIn("add_generation_prompt" if name != "mistral" and name != "mixtral" else "eos_token",
                              described["chat_template"]["variables"])
                self.assertEqual({"llama3": "llama3_json", "mistral": "mistral", "mixtral": "mistral", "gemma3": "plain",
                                  "deepseek-v3": "deepseek_v31", "granite": "plain"}[name], described["chat_dialect"])
                served = Served(self, folder, "--max-model-len", "256")
                status, rendered = served.post("/v1/chat/completions/render", CHAT)
                self.assertEqual(200, status, rendered)
                self.assertIn(turn, json.dumps(rendered, ensure_ascii=False))
                status, answer = served.post("/v1/chat/completions", CHAT)
                self.assertEqual(200, status, answer)

    def with_bos(self, *flags):
        """A model whose tokenizer.json begins texts with a bos token."""
        folder = pathlib.Path(self.scratch.name) / f"bos_{self._testMethodName}"
        subprocess.run([BINARY, "synth", "--like", ROOT / "testdata/golden/llama3/config.json", folder], check=True,
                       capture_output=True, timeout=200)
        return folder, Served(self, folder, "--max-model-len", "256", *flags)

    def test_a_text_begins_with_the_bos_token_once(self):
        folder, served = self.with_bos()
        config = json.loads((folder / "tokenizer_config.json").read_text())
        self.assertNotIn("add_bos_token", config)
        plain = served.post("/tokenize", {"prompt": "Hello", "add_special_tokens": False})[1]["tokens"]
        whole = served.post("/tokenize", {"prompt": "Hello"})[1]["tokens"]
        self.assertEqual(plain, whole[1:])
        for body, tokens in (({"prompt": "Hello"}, len(whole)), ({"prompt": whole}, len(whole)),
                             ({"prompt": "Hello", "add_special_tokens": False}, len(plain))):
            status, answer = served.post("/v1/completions", {**body, "max_tokens": 1})
            self.assertEqual((200, tokens), (status, answer["usage"]["prompt_tokens"]), answer)
        rendered = served.post("/v1/chat/completions/render", CHAT)[1]
        self.assertEqual(1, json.dumps(rendered, ensure_ascii=False).count(config["bos_token"]), rendered)
        self.assertEqual(1, rendered["token_ids"].count(whole[0]))
        for path, body, texts in (("/v1/embeddings", {"input": ["Hello", "Hello"]}, 2),
                                  ("/v2/embed", {"texts": ["Hello"], "input_type": "search_query",
                                                 "embedding_types": ["float"]}, 1),
                                  ("/v1/rerank", {"query": "Hello", "documents": ["Hello", "Hello"]}, 3)):
            status, answer = served.post(path, body)
            self.assertEqual(200, status, (path, answer))
            usage = answer.get("usage") or answer["meta"]["billed_units"]
            tokens = usage.get("total_tokens") or usage["input_tokens"]
            self.assertEqual(texts * len(whole), tokens, (path, answer))
        # Another file may know better.
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "add_bos_token": False}))
        without = Served(self, folder, "--max-model-len", "256")
        self.assertEqual(plain, without.post("/tokenize", {"prompt": "Hello"})[1]["tokens"])

    def test_what_is_shown_of_a_prompt_is_the_text(self):
        _, served = self.with_bos()
        whole = served.post("/tokenize", {"prompt": "Hello"})[1]["tokens"]
        body = {"prompt": "Hello", "max_tokens": 1, "echo": True, "logprobs": 0}
        choice = served.post("/v1/completions", body)[1]["choices"][0]
        self.assertTrue(choice["text"].startswith("Hello"), choice)
        tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
        self.assertEqual(len(whole) + 1, len(tokens))
        self.assertEqual([0, 0], offsets[:2], "bos has no text in it")
        for token, offset in list(zip(tokens, offsets))[1:len(whole)]:
            self.assertEqual(token, choice["text"][offset:offset + len(token)])
        marked = served.post("/v1/completions", {**body, "skip_special_tokens": False})[1]["choices"][0]
        self.assertTrue(marked["text"].startswith("<|begin_of_text|>Hello"), marked)
        ids = served.post("/v1/completions", {**body, "prompt": whole})[1]["choices"][0]
        self.assertTrue(ids["text"].startswith("Hello"), ids)

    def test_a_prompt_that_is_cut_keeps_its_bos_token(self):
        _, served = self.with_bos()
        whole = served.post("/tokenize", {"prompt": "Hello, world"})[1]["tokens"]
        for side, kept in (("left", whole[:1] + whole[-2:]), ("right", whole[:3])):
            body = {"prompt": "Hello, world", "max_tokens": 1, "truncate_prompt_tokens": 3, "truncation_side": side,
                    "return_token_ids": True}
            status, answer = served.post("/v1/completions", body)
            self.assertEqual(200, status, answer)
            self.assertEqual(kept, answer["choices"][0]["prompt_token_ids"], side)
        status, answer = served.post("/v2/embed", {"texts": ["Hello, world"], "input_type": "search_query",
                                                   "embedding_types": ["float"], "max_tokens": 3, "truncate": "START"})
        self.assertEqual(200, status, answer)
        short = served.post("/v1/embeddings", {"input": whole[:1] + whole[-2:]})[1]
        self.assertEqual(short["data"][0]["embedding"], answer["embeddings"]["float"][0])

    def test_each_dialect_from_folder_to_call(self):
        for teaches, call in CALLS.items():
            with self.subTest(teaches):
                served = self.with_template(TEMPLATE.replace("{{ teaches }}", teaches), f"hm</think>{call}<|im_end|>")
                body = {"messages": [{"role": "user", "content": "weather?"}], "tools": [WEATHER], "max_tokens": 200,
                        "chat_template_kwargs": {"enable_thinking": teaches != "<|python_tag|>"}}
                if teaches == "<|python_tag|>":  # a call is the whole answer
                    served = self.with_template(TEMPLATE.replace("{{ teaches }}", teaches), f"{call}<|im_end|>")
                status, answer = served.post("/v1/chat/completions", body)
                self.assertEqual(200, status, answer)
                choice = answer["choices"][0]
                self.assertEqual("tool_calls", choice["finish_reason"], answer)
                function = choice["message"]["tool_calls"][0]["function"]
                self.assertEqual(("get_weather", {"city": "Ulm"}), (function["name"], json.loads(function["arguments"])))

    def test_a_broken_template_and_an_unknown_parser_are_refused(self):
        template = self.folder / "chat_template.jinja"
        template.write_text("{% if %}")
        self.addCleanup(template.unlink)
        for flags, words in (((), ("chat_template.jinja", "line 1", "--chat-template")),
                             (("--chat-template", "/nowhere/x.jinja"), ("/nowhere/x.jinja",)),
                             (("--tool-call-parser", "nonsense"), ("--tool-call-parser", "hermes"))):
            done = subprocess.run([BINARY, "serve", self.folder, "--port", "0", *flags], capture_output=True, text=True,
                                  timeout=100)
            self.assertNotEqual(0, done.returncode)
            for word in words:
                self.assertIn(word, done.stderr)

    def test_without_a_tokenizer_token_ids_are_answered(self):
        tokenizer = self.folder / "tokenizer.json"
        text = tokenizer.read_bytes()
        tokenizer.unlink()
        try:
            served = Served(self, self.folder)
            status, answer = served.post("/v1/completions",
                                         {"prompt": [1, 2, 3], "max_tokens": 4, "return_token_ids": True})
            self.assertEqual(200, status, answer)
            self.assertEqual(4, len(answer["choices"][0]["token_ids"]), answer)
            for path, body in (("/v1/completions", {"prompt": "hello"}), ("/v1/chat/completions", CHAT),
                               ("/tokenize", {"prompt": "hello"})):
                status, answer = served.post(path, body)
                self.assertEqual(400, status, answer)
                self.assertIn("no tokenizer", json.dumps(answer))
        finally:
            tokenizer.write_bytes(text)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()

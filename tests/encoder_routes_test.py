#!/usr/bin/env python3
"""Embeddings, reranking and labels by real processes: three small BERT models, written here with random weights, beside
one another in one server, asked on every route of docs/embeddings.md. What a route answers is what `pelton embed`
computes from the same folder.

usage: encoder_routes_test.py BINARY
"""
import array
import base64
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import torch_state

BINARY = None
WORDS = "a the wheel turns tyre what sky is blue grass green cat sat on mat one two three four five".split()
HIDDEN, INNER, LAYERS, HEADS, POSITIONS = 32, 64, 2, 4, 32


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_bert(folder, architecture, labels, seed):
    """A folder as sentence-transformers publishes them; `labels`: of a classification head, or none."""
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    draw = random.Random(seed)
    tensors = {}

    def normal(name, *shape, deviation=0.2):
        tensors[name] = (list(shape), [draw.gauss(0, deviation) for _ in range(math.prod(shape))])

    def linear(name, rows, cols):
        normal(f"{name}.weight", rows, cols)
        normal(f"{name}.bias", rows)

    def norm(name):
        tensors[f"{name}.weight"] = ([HIDDEN], [1 + draw.gauss(0, 0.1) for _ in range(HIDDEN)])
        normal(f"{name}.bias", HIDDEN)

    prefix = "bert." if labels else ""
    normal(f"{prefix}embeddings.word_embeddings.weight", len(vocabulary), HIDDEN, deviation=1)
    normal(f"{prefix}embeddings.position_embeddings.weight", POSITIONS, HIDDEN)
    normal(f"{prefix}embeddings.token_type_embeddings.weight", 2, HIDDEN)
    norm(f"{prefix}embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"{prefix}encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            linear(f"{at}attention.self.{part}", HIDDEN, HIDDEN)
        linear(f"{at}attention.output.dense", HIDDEN, HIDDEN)
        norm(f"{at}attention.output.LayerNorm")
        linear(f"{at}intermediate.dense", INNER, HIDDEN)
        linear(f"{at}output.dense", HIDDEN, INNER)
        norm(f"{at}output.LayerNorm")
    config = {"architectures": [architecture], "model_type": "bert", "hidden_size": HIDDEN,
              "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "vocab_size": len(vocabulary),
              "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
              "position_embedding_type": "absolute"}
    if labels:
        linear("bert.pooler.dense", HIDDEN, HIDDEN)
        linear("classifier", len(labels), HIDDEN)
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    else:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(
            {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
        (folder / "modules.json").write_text(json.dumps([
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]))
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "what is "}}))
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    special = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, text in enumerate(vocabulary[:5])]

    def piece(token, type_id):
        return {"SpecialToken": {"id": token, "type_id": type_id}}

    def sequence(which, type_id):
        return {"Sequence": {"id": which, "type_id": type_id}}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [piece("[CLS]", 0), sequence("A", 0), piece("[SEP]", 0)],
            "pair": [piece("[CLS]", 0), sequence("A", 0), piece("[SEP]", 0), sequence("B", 1), piece("[SEP]", 1)],
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]}
                               for name, i in (("[CLS]", 2), ("[SEP]", 3))}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(vocabulary)}}}))


def unit(vector):
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softmax(logits):
    powers = [math.exp(x - max(logits)) for x in logits]
    return [x / sum(powers) for x in powers]


def write_sparse_head(folder, seed, width=HIDDEN):
    """bge-m3's sparse_linear.pt: weights and bias of half precision, as they are returned."""
    draw = random.Random(seed)
    weight, bias = (array.array("f", values) for values in ([draw.gauss(0, 0.5) for _ in range(width)], [0.25]))
    in_halves = [struct.pack(f"<{len(values)}e", *values) for values in (weight, bias)]
    torch_state.write_state(folder / "sparse_linear.pt", {"weight": ("F16", [1, width], in_halves[0]),
                                                          "bias": ("F16", [1], in_halves[1])})
    return [struct.unpack(f"<{len(half) // 2}e", half) for half in in_halves]


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        write_bert(cls.root / "vectors", "BertModel", None, 1)
        cls.sparse_weight, (cls.sparse_bias,) = write_sparse_head(cls.root / "vectors", 4)
        write_bert(cls.root / "ranker", "BertForSequenceClassification", ["LABEL_0"], 2)
        write_bert(cls.root / "labels", "BertForSequenceClassification", ["calm", "angry", "<b>odd</b>"], 3)
        cls.log = open(cls.root / "log", "w+", encoding="utf-8")
        cls.addClassCleanup(cls.log.close)
        cls.process = subprocess.Popen(
            [BINARY, "serve", *(str(cls.root / name) for name in ("vectors", "ranker", "labels")), "--port", "0",
             "--threads", "1"], stdout=subprocess.PIPE, stderr=cls.log, text=True)

        def end():
            cls.process.kill()
            cls.process.wait(30)
            cls.process.stdout.close()
        cls.addClassCleanup(end)
        line = cls.process.stdout.readline()
        if "http://" not in line:
            cls.log.seek(0)
            raise AssertionError(line + cls.log.read())
        cls.address = line[line.index("http://"):].split()[0].rstrip("/")
        models = json.loads(urllib.request.urlopen(cls.address + "/v1/models", timeout=30).read())["data"]
        cls.names = {name: next(m["id"] for m in models if m["id"].endswith(name))
                     for name in ("vectors", "ranker", "labels")}

    def ask(self, path, body=None, model="vectors"):
        data = None if body is None else json.dumps({"model": self.names[model], **body}).encode()
        request = urllib.request.Request(self.address + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def answer(self, path, body, model="vectors"):
        status, answer = self.ask(path, body, model)
        self.assertEqual(status, 200, answer)
        return answer

    def refused(self, path, body, *words, model="vectors"):
        status, answer = self.ask(path, body, model)
        self.assertEqual(status, 400, answer)
        for word in words:
            self.assertIn(word, json.dumps(answer))

    def embed(self, model, *arguments):
        run = subprocess.run([BINARY, "embed", str(self.root / model), "--threads", "1", *arguments],
                             capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def near(self, got, expected, limit=2e-6):
        self.assertEqual(len(got), len(expected))
        for a, b in zip(got, expected):
            self.assertAlmostEqual(a, b, delta=limit)

    def test_one_vector_on_every_route(self):
        texts = ["a wheel turns", "The sky is blue", "cat"]
        expected = self.embed("vectors", *(x for text in texts for x in ("--text", text)))
        answer = self.answer("/v1/embeddings", {"input": texts})
        for item, vector in zip(answer["data"], expected):
            self.near(item["embedding"], vector)
        self.assertEqual(answer["usage"]["prompt_tokens"], 5 + 6 + 3)
        in_base64 = self.answer("/v1/embeddings", {"input": texts[0], "encoding_format": "base64"})
        floats = array.array("f", base64.b64decode(in_base64["data"][0]["embedding"]))
        self.near(floats, expected[0])
        for vector, wanted in zip(self.answer("/embed", {"inputs": texts}), expected):
            self.near(vector, wanted)
        cohere = self.answer("/v2/embed", {"texts": texts, "input_type": "search_document",
                                         "embedding_types": ["float"]})
        for vector, wanted in zip(cohere["embeddings"]["float"], expected):
            self.near(vector, wanted)
        # The same to the bit, however many are asked at once.
        crowd = texts[:1] + [" ".join(random.Random(i).choices(WORDS, k=1 + i % 20)) for i in range(100)]
        self.assertEqual(self.answer("/embed", {"inputs": crowd})[0], self.answer("/embed", {"inputs": texts[0]})[0])

    def test_pooling_prompts_and_dimensions(self):
        text = "the sky"
        for pooling in ("cls", "mean", "last"):
            wanted = self.embed("vectors", "--text", text, "--pooling", pooling)[0]
            got = self.answer("/v1/embeddings", {"input": text, "pooling": pooling})["data"][0]["embedding"]
            self.near(got, wanted)
        wanted = self.embed("vectors", "--text", "what is the sky")[0]
        self.near(self.answer("/embed", {"inputs": text, "prompt_name": "query"})[0], wanted)
        self.near(self.answer("/v1/embeddings", {"input": text, "input_type": "query"})["data"][0]["embedding"], wanted)
        raw = self.embed("vectors", "--text", text, "--raw")[0]
        self.near(self.answer("/embed", {"inputs": text, "normalize": False})[0], raw, 1e-5)
        self.near(self.answer("/v1/embeddings", {"input": text, "dimensions": 8})["data"][0]["embedding"],
                  unit(raw[:8]))
        self.refused("/embed", {"inputs": text, "prompt_name": "nobody"}, "prompt_name", "nobody")
        self.refused("/v1/embeddings", {"input": text, "dimensions": HIDDEN + 1}, "dimensions", str(HIDDEN))

    def test_every_tokens_state(self):
        states = self.answer("/embed_all", {"inputs": "a wheel turns"})[0]
        self.assertEqual((len(states), len(states[0])), (5, HIDDEN))
        first = self.embed("vectors", "--text", "a wheel turns", "--pooling", "cls", "--raw")[0]
        self.near(states[0], first, 1e-5)

    def test_likeness(self):
        sentences = ["a wheel turns", "the tyre turns", "grass is green"]
        vectors = self.embed("vectors", *(x for text in ["what turns", *sentences] for x in ("--text", text)))
        wanted = [sum(a * b for a, b in zip(vectors[0], vector)) for vector in vectors[1:]]
        got = self.answer("/similarity", {"inputs": {"source_sentence": "what turns", "sentences": sentences}})
        self.near(got, wanted, 1e-5)

    def test_a_cross_encoder_ranks(self):
        documents = ["the wheel turns", "grass is green", "two three", "what turns"]
        logits = [row[0] for row in self.embed("ranker", "--query", "what turns",
                                               *(x for text in documents for x in ("--text", text)))]
        order = sorted(range(len(documents)), key=lambda i: -logits[i])
        for path in ("/rerank", "/v1/rerank"):
            ranked = self.answer(path, {"query": "what turns", "documents": documents, "top_n": 3}, "ranker")["results"]
            self.assertEqual([item["index"] for item in ranked], order[:3])
            self.near([item["relevance_score"] for item in ranked], [sigmoid(logits[i]) for i in order[:3]])
        tei = self.answer("/rerank", {"query": "what turns", "texts": documents, "raw_scores": True,
                                    "return_text": True}, "ranker")
        self.assertEqual([(item["index"], item["text"]) for item in tei], [(i, documents[i]) for i in order])
        self.near([item["score"] for item in tei], [logits[i] for i in order], 1e-5)
        scores = self.answer("/v1/score", {"text_1": "what turns", "text_2": documents}, "ranker")["data"]
        self.near([item["score"] for item in scores], [sigmoid(x) for x in logits])
        # Another sentence first is another pair: BERT's second segment has types of its own.
        swapped = self.answer("/v1/score", {"text_1": documents[0], "text_2": "what turns"}, "ranker")["data"][0]
        self.assertNotAlmostEqual(swapped["score"], scores[0]["score"], places=5)

    def test_labels(self):
        names = ["calm", "angry", "<b>odd</b>"]
        logits = self.embed("labels", "--text", "the cat sat", "--labels")[0]
        best = sorted(zip(softmax(logits), names), reverse=True)
        predicted = self.answer("/predict", {"inputs": "the cat sat"}, "labels")
        self.assertEqual([item["label"] for item in predicted], [label for _, label in best])
        self.near([item["score"] for item in predicted], [score for score, _ in best])
        classified = self.answer("/classify", {"input": ["the cat sat", "one"]}, "labels")["data"]
        self.near(classified[0]["probs"], softmax(logits))
        self.assertEqual(classified[0]["label"], best[0][1])
        self.assertEqual([item["index"] for item in classified], [0, 1])
        pair = self.answer("/predict", {"inputs": [["the cat", "sat"], ["one"]]}, "labels")
        self.assertEqual([len(item) for item in pair], [3, 3])

    def test_what_it_is(self):
        status, info = self.ask("/info")
        self.assertEqual(status, 200)
        self.assertEqual(info["max_input_length"], POSITIONS)

    def test_inspect_names_the_command(self):
        for model, task, route in (("vectors", "text to vectors", "/v1/embeddings"),
                                   ("ranker", "pairs of texts to scores", "/v1/rerank"),
                                   ("labels", "text to labels", "/classify")):
            folder = str(self.root / model)
            run = subprocess.run([BINARY, "inspect", folder], capture_output=True, text=True, timeout=60, check=True)
            line = next(line for line in run.stdout.splitlines() if line.startswith("task "))
            self.assertIn(f"{task} (pelton serve, then POST {route}; pelton embed", line)
            for absent in ("KV cache", "stop tokens", "chat format"):
                self.assertNotIn(absent, run.stdout)
            run = subprocess.run([BINARY, "inspect", folder, "--json"], capture_output=True, text=True, timeout=60,
                                 check=True)
            self.assertEqual(json.loads(run.stdout)["task"], task)

    def test_a_plan_speaks_of_no_kv_cache(self):
        for more in ([], ["--gpu", "h100"]):
            run = subprocess.run([BINARY, "plan", str(self.root / "vectors"), *more], capture_output=True, text=True,
                                 timeout=60, check=True)
            self.assertRegex(run.stdout, rf"(?i)no KV cache[;:] texts (of|have) up to {POSITIONS} tokens")
            for absent in ("left for the KV", "blocks of", "8K", "sequences of"):
                self.assertNotIn(absent, run.stdout)

    def test_requests_without_answers_are_simulated(self):
        def simulate(model, *more):
            run = subprocess.run([BINARY, "simulate", str(model), "--gpu", "h100", "--num-prompts", "20",
                                  "--request-rate", "100", "--json", "-", *more], capture_output=True, text=True,
                                 timeout=120, check=False)
            return run.returncode, run.stdout, run.stderr
        vectors = self.root / "vectors"
        code, played, said = simulate(vectors, "--input-len", str(POSITIONS))
        self.assertEqual(code, 0, said)
        self.assertEqual(json.loads(played)["completed"], 20)
        self.assertIn("No answers: a request ends with its prompt's last step", said)
        self.assertEqual(simulate(vectors, "--input-len", "16", "--output-len", "0")[0], 0)
        code, _, said = simulate(vectors, "--input-len", "16", "--output-len", "8")
        self.assertEqual(code, 2, said)
        self.assertIn("makes no text", said)
        # Of any model.
        code, played, said = simulate("gpt-oss-20b", "--input-len", "100", "--output-len", "0")
        self.assertEqual(code, 0, said)
        self.assertEqual(json.loads(played)["completed"], 20)

    def test_what_a_named_one_is(self):
        self.assertEqual(self.ask("/info?model=" + self.names["labels"])[1]["model_id"], self.names["labels"])
        ranker = self.ask("/info?model=" + self.names["ranker"])[1]
        self.assertEqual(ranker["model_id"], self.names["ranker"])
        self.assertIn("reranker", ranker["model_type"])
        status, answer = self.ask("/info?model=nobody")
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_a_question_is_never_cut(self):
        def words(word, count):
            return " ".join([word] * count)
        # [CLS] question [SEP] document [SEP]: 28 leave room for one token of a document, 29 for none.
        most, fits = words("wheel", POSITIONS - 3), words("wheel", POSITIONS - 4)
        for query in (most, words("wheel", 100)):
            for path, body, field in (
                    ("/v1/rerank", {"query": query, "documents": ["cat"]}, "query"),
                    ("/v2/rerank", {"query": query, "documents": ["cat"]}, "query"),
                    ("/rerank", {"query": query, "documents": ["cat"]}, "query"),
                    ("/rerank", {"query": query, "texts": ["cat"]}, "query"),
                    ("/rerank", {"query": query, "texts": ["cat"], "truncate": True}, "query"),
                    ("/score", {"text_1": query, "text_2": "cat"}, "text_1"),
                    ("/score", {"text_1": ["cat", query], "text_2": ["cat", "cat"]}, "text_1[1]"),
                    ("/score", {"queries": query, "documents": ["cat"]}, "queries"),
                    ("/predict", {"inputs": [query, "cat"]}, "inputs[0]"),
                    ("/predict", {"inputs": [["cat"], [query, "cat"]], "truncate": True}, "inputs[1][0]")):
                with self.subTest(path=path, field=field, words=len(query.split())):
                    status, answer = self.ask(path, body, "ranker")
                    self.assertEqual((status, answer.get("error", {}).get("param")), (400, field), answer)
                    self.assertIn(f"at most {POSITIONS} tokens", answer["error"]["message"])
        for path, body in (("/v1/rerank", {"query": fits, "documents": ["cat", "two cat"]}),
                           ("/rerank", {"query": fits, "texts": ["cat", "cat two"], "truncate": True})):
            answer = self.answer(path, body, "ranker")
            scores = [item.get("relevance_score", item.get("score"))
                      for item in (answer if isinstance(answer, list) else answer["results"])]
            if "texts" in body:  # one token of each document is left, the same
                self.assertEqual(scores[0], scores[1])
        # Vectors of their own: the question fills the whole length at most.
        self.answer("/v1/rerank", {"query": words("wheel", POSITIONS - 2), "documents": ["cat"]})
        self.refused("/v1/rerank", {"query": words("wheel", POSITIONS - 1), "documents": ["cat"]}, "query",
                     str(POSITIONS))
        run = subprocess.run([BINARY, "embed", str(self.root / "ranker"), "--query", most, "--text", "cat"],
                             capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("--query has 29 tokens", run.stderr)

    def test_a_document_is_cut_at_the_side_that_is_named(self):
        long = " ".join(["one"] * 40 + ["two"] * 40)

        def score(text, **more):
            return self.answer("/rerank", {"query": "what turns", "texts": [text], **more}, "ranker")[0]["score"]

        room = POSITIONS - 3 - 2
        head, tail = score(" ".join(["one"] * room)), score(" ".join(["two"] * room))
        self.assertNotEqual(head, tail)
        self.assertEqual(score(long, truncate=True), head)
        self.assertEqual(score(long, truncate=True, truncation_direction="Right"), head)
        self.assertEqual(score(long, truncate=True, truncation_direction="Left"), tail)
        self.refused("/rerank", {"query": "what turns", "texts": [long], "truncation_direction": "Left"}, "texts[0]",
                     str(POSITIONS), model="ranker")

        def predicted(text, **more):
            return self.answer("/predict", {"inputs": ["what turns", text], **more}, "labels")

        self.assertEqual(predicted(long, truncate=True), predicted(" ".join(["one"] * room)))
        self.assertEqual(predicted(long, truncate=True, truncation_direction="Left"),
                         predicted(" ".join(["two"] * room)))
        # By vectors, and by a limit of the request's own.
        by_vectors = self.answer("/rerank", {"query": "two", "texts": [long], "truncate": True,
                                             "truncation_direction": "Left"})
        self.assertEqual(by_vectors, self.answer("/rerank", {"query": "two", "texts": [" ".join(["two"] * 30)]}))
        three = self.answer("/v1/rerank", {"query": "what turns", "documents": [long], "max_tokens_per_doc": 3},
                            "ranker")["results"][0]["relevance_score"]
        self.assertEqual(three, score("one one one"))

    def test_an_instruction_is_of_models_that_take_one(self):
        for model in ("ranker", "vectors"):
            for path, body in (("/v1/rerank", {"query": "a", "documents": ["cat"]}),
                               ("/score", {"text_1": "a", "text_2": "cat"})):
                status, answer = self.ask(path, {**body, "instruction": "Find cats."}, model)
                self.assertEqual((status, answer.get("error", {}).get("param")), (400, "instruction"), answer)
                self.answer(path, {**body, "instruction": ""}, model)

    def test_another_models_context_is_no_reason_not_to_serve_an_encoder(self):
        with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                [BINARY, "serve", str(self.root / "vectors"), str(self.root / "ranker"), "--port", "0",
                 "--threads", "1", "--max-model-len", "2048"], stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                line = process.stdout.readline()
                log.seek(0)
                said = log.read()
                self.assertIn("http://", line, said)
                address = line[line.index("http://"):].split()[0].rstrip("/")
                models = json.loads(urllib.request.urlopen(address + "/v1/models", timeout=30).read())["data"]
                self.assertEqual({model["max_model_len"] for model in models}, {POSITIONS})
                self.assertGreaterEqual(len(models), 2)
            finally:
                process.kill()
                process.wait(30)
                process.stdout.close()
        self.assertIn(f"--max-model-len 2048 is other models': this encoder's longest text has {POSITIONS} tokens",
                      said)
        run = subprocess.run([BINARY, "serve", str(self.root / "vectors"), "--port", "0", "--max-model-len", "2048"],
                             capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("is more than the model's 32", run.stderr)

    def test_what_the_loads_took(self):
        with urllib.request.urlopen(self.address + "/metrics", timeout=30) as page:
            lines = [line for line in page.read().decode().splitlines() if "pelton_model_load_seconds{" in line]
        for model in self.names.values():
            mine = [line for line in lines if f'model_name="{model}"' in line]
            phases = [line.split('phase="')[1].split('"')[0] for line in mine]
            self.assertEqual(phases, ["files", "tokenizer", "weights", "memory"])
            self.assertGreater(sum(float(line.split()[-1]) for line in mine), 0)

    def test_what_was_embedded_is_on_the_metrics_page(self):
        def page():
            with urllib.request.urlopen(self.address + "/metrics", timeout=30) as answer:
                lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#"]
            return {name: float(value) for name, value in lines}

        def of(figures, model, metric, more=""):
            return figures[f'{metric}{{model_name="{self.names[model]}",engine="0"{more}}}']
        for model in self.names:
            before = page()
            texts = ["a wheel turns", "The sky is blue", "cat"]
            tokens = 5 + 6 + 3
            if model == "vectors":
                self.answer("/v1/embeddings", {"input": texts})
            elif model == "ranker":
                tokens += 3 * 2  # "what [SEP]"
                self.answer("/v1/rerank", {"query": "what", "documents": texts}, model)
            else:
                self.answer("/classify", {"input": texts}, model)
            after = page()
            grown = {name: of(after, model, name) - of(before, model, name)
                     for name in ("pelton_embedding_texts_total", "pelton_embedding_tokens_total",
                                  "pelton_embedding_queue_seconds_count", "pelton_embedding_batch_fill_count",
                                  "vllm:e2e_request_latency_seconds_count", "vllm:request_queue_time_seconds_count",
                                  "vllm:request_prompt_tokens_sum")}
            self.assertIn(grown.pop("pelton_embedding_batch_fill_count"), (1, 2, 3))
            self.assertEqual(grown, {
                "pelton_embedding_texts_total": 3, "pelton_embedding_tokens_total": tokens,
                "pelton_embedding_queue_seconds_count": 3, "vllm:e2e_request_latency_seconds_count": 3,
                "vllm:request_queue_time_seconds_count": 3, "vllm:request_prompt_tokens_sum": tokens})
            self.assertEqual(of(after, model, "vllm:request_success_total", ',finished_reason="stop"')
                             - of(before, model, "vllm:request_success_total", ',finished_reason="stop"'), 3)
            self.assertEqual(of(after, model, "pelton_embedding_texts_waiting"), 0)
            fill = of(after, model, "pelton_embedding_batch_fill_sum")
            self.assertTrue(0 < fill <= of(after, model, "pelton_embedding_batch_fill_count"), fill)
        # None of them has keys and values.
        of_kv = [name for name in after if name.startswith(("pelton_kv_", "vllm:cache_config_info", "vllm:prefix_cache"))]
        self.assertEqual([name for name in of_kv if "block_copies" not in name], [])

    def sparse_of(self, words):
        """By the states of /embed_all, the ids of the vocabulary, and arithmetic of its own."""
        states = self.answer("/embed_all", {"inputs": " ".join(words)})[0]
        self.assertEqual(len(states), len(words) + 2)
        expected = {}
        for word, state in zip(words, states[1:]):
            weight = sum(a * b for a, b in zip(self.sparse_weight, state)) + self.sparse_bias
            if weight > 0 and word in WORDS:
                token = 5 + WORDS.index(word)
                expected[token] = max(expected.get(token, 0), weight)
        return expected

    def test_lexical_weights_are_each_tokens_heaviest(self):
        texts = [words.split() for words in (
            "a wheel turns the wheel what a wheel", "cat", "the sky is blue zebra grass is green", " ".join(WORDS))]
        answers = self.answer("/embed_sparse", {"inputs": [" ".join(words) for words in texts]})
        self.assertEqual(len(answers), len(texts))
        kept = 0
        for words, got in zip(texts, answers):
            expected = self.sparse_of(words)
            self.assertEqual([one["index"] for one in got], sorted(expected))
            self.near([one["value"] for one in got], [expected[token] for token in sorted(expected)], 1e-5)
            kept += len(got)
        distinct = sum(len(set(words)) for words in texts)
        self.assertTrue(0 < kept < distinct, "some weights are nothing, and left out")
        # One text alone gives the same numbers; ids are their own text, without tokens around it.
        self.assertEqual(self.answer("/embed_sparse", {"inputs": " ".join(texts[0])}), answers[:1])
        ids = [5 + WORDS.index(word) for word in texts[0]]
        (alone,) = self.answer("/embed_sparse", {"inputs": [ids]})
        self.assertTrue({one["index"] for one in alone} <= set(ids))
        # Cut, it is a shorter text.
        head = ["one", "two"] * 20
        self.refused("/embed_sparse", {"inputs": " ".join(head)}, "inputs", str(POSITIONS))
        self.assertEqual(self.answer("/embed_sparse", {"inputs": " ".join(head), "truncate": True}),
                         self.answer("/embed_sparse", {"inputs": " ".join(head[:POSITIONS - 2])}))

    def test_lexical_weights_that_nobody_makes_are_refused(self):
        self.refused("/embed_sparse", {"inputs": "cat"}, "sparse head", "model", model="ranker")
        for route in ("/embed_sparse", "/embed_all"):
            for field, value in (("dimensions", 4), ("normalize", True), ("inputs", None), ("inputs", {"a": 1}),
                                 ("truncate", "yes"), ("prompt_name", 7)):
                self.refused(route, {"inputs": "cat", field: value}, field)
            self.answer(route, {"inputs": "cat", "normalize": False, "dimensions": None})
        broken = self.root / "broken"
        write_bert(broken, "BertModel", None, 5)
        write_sparse_head(broken, 6, HIDDEN + 1)
        run = subprocess.run([BINARY, "serve", str(broken), "--port", "0", "--threads", "1"], capture_output=True,
                             text=True, timeout=60, check=False)
        self.assertNotEqual(run.returncode, 0)
        for word in ("sparse_linear.pt", "weight", str(HIDDEN), str(HIDDEN + 1)):
            self.assertIn(word, run.stderr)

    def test_heads_say_logits_where_no_activation_is_asked_for(self):
        def probs(**more):
            return self.answer("/classify", {"input": ["the sky is blue"], **more}, "labels")["data"][0]["probs"]
        logits = probs(activation=False)
        self.near(softmax(logits), probs())
        self.assertNotAlmostEqual(sum(logits), 1, 3)
        for name in ("activation", "use_activation", "softmax"):
            self.assertEqual(probs(**{name: False}), logits)
            self.assertEqual(probs(**{name: True}), probs())
            body = {"query": "what", "documents": ["cat", "the grass"]}
            raw = self.answer("/v1/rerank", {**body, "raw_scores": True}, "ranker")["results"]
            self.assertEqual(self.answer("/v1/rerank", {**body, name: False}, "ranker")["results"], raw)
            scored = self.answer("/score", {"text_1": "what", "text_2": "cat", name: False}, "ranker")["data"][0]["score"]
            self.assertEqual(scored, next(one["relevance_score"] for one in raw if one["index"] == 0))
            self.refused("/v1/rerank", {**body, name: False, "raw_scores": False}, name, model="ranker")
            # Nothing else has one to leave out.
            self.refused("/v1/embeddings", {"input": "cat", name: False}, name)
            self.answer("/v1/embeddings", {"input": "cat", name: True})

    def test_what_a_route_would_pass_over_is_refused(self):
        bodies = (("/embed", {"inputs": "cat"}, "vectors"), ("/embed_all", {"inputs": "cat"}, "vectors"),
                  ("/v2/embed", {"texts": ["cat"], "input_type": "query"}, "vectors"),
                  ("/v1/rerank", {"query": "what", "documents": ["cat"]}, "ranker"),
                  ("/rerank", {"query": "what", "texts": ["cat"]}, "ranker"),
                  ("/score", {"text_1": "what", "text_2": "cat"}, "ranker"),
                  ("/classify", {"input": "cat"}, "labels"), ("/predict", {"inputs": "cat"}, "labels"))
        for path, body, model in bodies:
            self.refused(path, {**body, "add_special_tokens": False}, "add_special_tokens", model=model)
            self.answer(path, {**body, "add_special_tokens": True}, model)
        for path in ("/v1/rerank", "/score"):
            body = next(body for known, body, _ in bodies if known == path)
            self.refused(path, {**body, "pooling": "mean"}, "pooling", model="ranker")
            self.answer(path, {**body, "pooling": "mean"}, "vectors")

    def test_what_is_too_long_or_unknown_is_refused_by_name(self):
        long = " ".join(["one"] * 60)
        self.refused("/v1/embeddings", {"input": long}, "input", str(POSITIONS))
        self.refused("/embed", {"inputs": ["cat", long]}, "inputs", str(POSITIONS))
        self.refused("/embed_all", {"inputs": long}, "inputs", str(POSITIONS))
        head, tail = " ".join(["one"] * 30 + ["two"] * 30), " ".join(["one"] * 30)
        self.assertEqual(self.answer("/embed", {"inputs": head, "truncate": True}),
                         self.answer("/embed", {"inputs": tail}))
        self.assertEqual(self.answer("/embed", {"inputs": head, "truncate": True, "truncation_direction": "Left"}),
                         self.answer("/embed", {"inputs": " ".join(["two"] * 30)}))
        # A question that fills it leaves no room for a document.
        self.refused("/rerank", {"query": long, "texts": ["cat"]}, "query", model="ranker")
        self.answer("/rerank", {"query": "what", "documents": [long]}, "ranker")
        for path, body, word in (
                ("/embed", {"inputs": []}, "inputs"), ("/embed", {"inputs": 7}, "inputs"),
                ("/embed", {}, "inputs"), ("/embed_all", {"inputs": {"a": 1}}, "inputs"),
                ("/similarity", {"inputs": {"source_sentence": "a"}}, "sentences"),
                ("/embed", {"inputs": "cat", "truncation_direction": "up"}, "truncation_direction"),
                ("/v1/embeddings", {"input": [[0, 99999]]}, "input"),
                ("/v1/embeddings", {"input": "cat", "encoding_format": "hex"}, "encoding_format")):
            self.refused(path, body, word)
        self.refused("/predict", {"inputs": "cat"}, "classification", model="vectors")
        self.refused("/v1/chat/completions", {"messages": [{"role": "user", "content": "cat"}]}, "vectors")
        # Nobody was disturbed.
        self.answer("/v1/embeddings", {"input": "cat"})


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()

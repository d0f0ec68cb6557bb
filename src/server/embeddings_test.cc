// POST /v1/embeddings, /v1/rerank, /v1/score: vectors of length one, whole batches, refusals.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/embedding_response.h"
#include "base/base64.h"
#include "server/embedding_batch.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"context": 64, "rules": [{"when": "", "then": "x"}]})";

constexpr std::string_view kLongScript = R"({"rules": [{"when": "", "then": "x"}]})";

std::vector<std::vector<double>> embedded(ServerFixture& fixture, const std::string& request) {
  const net::HttpResponse response = fixture.post("/v1/embeddings", request);
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<std::vector<double>> vectors;
  const Json body = parsed(response.body);
  EXPECT_EQ(body.string("object"), "list");
  for (const Json& item : body.find("data")->as_array()) {
    EXPECT_EQ(item.integer("index"), static_cast<int64_t>(vectors.size()));
    EXPECT_EQ(item.string("object"), "embedding");
    std::vector<double>& vector = vectors.emplace_back();
    for (const Json& value : item.find("embedding")->as_array()) {
      vector.push_back(value.as_number());
    }
  }
  return vectors;
}

double length(const std::vector<double>& vector) {
  double square = 0.0;
  for (const double value : vector) square += value * value;
  return std::sqrt(square);
}

TEST(Embeddings, OneVectorOfLengthOneForEachInput) {
  ServerFixture fixture(kScript, {});
  const auto one = embedded(fixture, R"({"input":"Hello"})");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].size(), 64u);
  EXPECT_NEAR(length(one[0]), 1.0, 1e-6);
  const auto several = embedded(fixture, R"({"input":["Hello","world","Hello"]})");
  ASSERT_EQ(several.size(), 3u);
  EXPECT_EQ(several[0], one[0]);
  EXPECT_EQ(several[2], one[0]);
  EXPECT_NE(several[1], one[0]);
  // The same tokens, by their ids: bytes are their own ids in this vocabulary.
  EXPECT_EQ(embedded(fixture, R"({"input":[72,105]})"), embedded(fixture, R"({"input":"Hi"})"));
  EXPECT_EQ(embedded(fixture, R"({"input":[[72,105],[72]]})").size(), 2u);
}

TEST(Embeddings, StatesOfAllTokensEndWithTheTextsOwn) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse states = fixture.post("/embed_all", R"({"inputs":["Hi",[72,105,106]]})");
  ASSERT_EQ(states.status, 200) << states.body;
  const net::HttpResponse last =
      fixture.post("/embed", R"({"inputs":["Hi",[72,105,106]],"normalize":false})");
  ASSERT_EQ(last.status, 200) << last.body;
  const Json all = parsed(states.body);
  const Json own = parsed(last.body);
  ASSERT_EQ(all.as_array().size(), 2u);
  EXPECT_EQ(all.as_array()[0].as_array().size(), 2u);
  EXPECT_EQ(all.as_array()[1].as_array().size(), 3u);
  for (size_t text = 0; text < 2; ++text) {
    EXPECT_EQ(all.as_array()[text].as_array().back(), own.as_array()[text]);
  }
}

// A decoder's first token sees nothing but itself.
TEST(Embeddings, ThePoolingOfScoresIsCheckedToo) {
  ServerFixture fixture(kScript, {});
  for (const auto& [path, body] : {std::pair{"/v1/rerank", R"({"query":"a","documents":["b"],)"},
                                   std::pair{"/score", R"({"text_1":"a","text_2":["b"],)"},
                                   std::pair{"/v1/embeddings", R"({"input":"a",)"}}) {
    const net::HttpResponse response =
        fixture.post(path, std::string(body) + R"("pooling":"cls"})");
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), "pooling") << response.body;
    EXPECT_EQ(fixture.post(path, std::string(body) + R"("pooling":"mean"})").status, 200) << path;
  }
}

// 42.6: also of a model that makes text, from its first vector on.
TEST(Embeddings, AreCountedOnTheMetricsPage) {
  ServerFixture fixture(kScript, {});
  const auto metric = [&](const std::string& name) -> double {
    const std::string page = fixture.get("/metrics").body;
    const size_t at = page.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
  };
  const std::string of = R"({model_name="tiny",engine="0")";
  EXPECT_EQ(metric("pelton_embedding_texts_total" + of + "}"), -1);
  ASSERT_EQ(embedded(fixture, R"({"input":[[72,105],[72,105,106],[72]]})").size(), 3u);
  EXPECT_EQ(metric("pelton_embedding_texts_total" + of + "}"), 3);
  EXPECT_EQ(metric("pelton_embedding_tokens_total" + of + "}"), 6);
  EXPECT_EQ(metric("pelton_embedding_texts_waiting" + of + "}"), 0);
  EXPECT_EQ(metric("pelton_embedding_queue_seconds_count" + of + "}"), 3);
  const double steps = metric("pelton_embedding_batch_fill_count" + of + "}");
  EXPECT_GE(steps, 1);
  EXPECT_LE(steps, 3);
  const engine::ExecutorCapacity& capacity = fixture.model().engine.capacity();
  EXPECT_NEAR(metric("pelton_embedding_batch_fill_sum" + of + "}"), 6.0 / capacity.batch_tokens_max,
              1e-6);
  EXPECT_EQ(metric("vllm:request_success_total" + of + R"(,finished_reason="stop"})"), 3);
  EXPECT_EQ(metric("vllm:e2e_request_latency_seconds_count" + of + "}"), 3);
  EXPECT_EQ(metric("vllm:request_queue_time_seconds_count" + of + "}"), 3);
  EXPECT_EQ(metric("vllm:request_prompt_tokens_sum" + of + "}"), 6);
}

// AP-05: of token ids only those of the vocabulary are taken.
TEST(Embeddings, AP_05_tokens_are_of_the_vocabulary) {
  ServerFixture fixture(kScript, {});
  const std::string size = std::to_string(fixture.model().vocab_size);
  for (const std::string& bad : {std::string("-1"), size, std::string("2147483648"),
                                 std::string("1.5"), std::string("4294967296")}) {
    for (const auto& [input, param] : {std::pair("[65," + bad + "]", "input[1]"),
                                       std::pair("[[65],[65," + bad + "]]", "input[1][1]")}) {
      const net::HttpResponse response =
          fixture.post("/v1/embeddings", "{\"input\":" + input + "}");
      EXPECT_EQ(response.status, 400) << input;
      const Json body = parsed(response.body);
      EXPECT_EQ(body.find("error")->string("param"), param) << response.body;
      EXPECT_EQ(body.find("error")->string("type"), "invalid_request_error");
    }
  }
  EXPECT_EQ(fixture.post("/v1/embeddings", R"({"input":[65]})").status, 200);
}

TEST(Embeddings, AChatIsEmbeddedAsItsPrompt) {
  ServerFixture fixture(kLongScript, {});
  const std::string chat = R"("messages":[{"role":"user","content":"hi"}])";
  const auto tokens = [&](const char* more) {
    const Json body = parsed(fixture.post("/tokenize", "{" + chat + more + "}").body);
    return body.find("tokens")->dump();
  };
  ServerFixture::Options options;
  options.model = [](ServedModel& model) { model.control_tokens_in_prompts = true; };
  ServerFixture open_fixture(kLongScript, std::move(options));
  EXPECT_EQ(
      embedded(fixture, "{" + chat + "}"),
      embedded(open_fixture, R"({"input":)" + tokens(R"(,"add_generation_prompt":false)") + "}"));
  EXPECT_EQ(embedded(fixture, "{" + chat + R"(,"add_generation_prompt":true})"),
            embedded(open_fixture, R"({"input":)" + tokens("") + "}"));
  EXPECT_EQ(fixture.post("/v1/embeddings", "{" + chat + R"(,"input":"x"})").status, 400);
  EXPECT_EQ(fixture.post("/v1/embeddings", R"({"messages":[]})").status, 400);
}

TEST(Embeddings, AnswersAsCoheresDoes) {
  ServerFixture fixture(kScript, {});
  const auto vector = embedded(fixture, R"({"input":"Hello"})");
  const net::HttpResponse response = fixture.post(
      "/v2/embed", R"({"model":"tiny","texts":["Hello","world"],)"
                   R"("input_type":"search_query","embedding_types":["float","base64"]})");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json body = parsed(response.body);
  EXPECT_EQ(body.find("texts")->dump(), R"(["Hello","world"])");
  EXPECT_GT(body.find("meta")->find("billed_units")->integer("input_tokens").value_or(0), 0);
  const Json::Array& floats = body.find("embeddings")->find("float")->as_array();
  ASSERT_EQ(floats.size(), 2u);
  std::vector<double> first;
  for (const Json& value : floats[0].as_array()) first.push_back(value.as_number());
  EXPECT_EQ(first, vector[0]);
  EXPECT_EQ(body.find("embeddings")->find("base64")->as_array().size(), 2u);
  const Json plain = parsed(fixture.post("/v2/embed", R"({"texts":["Hello"]})").body);
  EXPECT_EQ(plain.find("embeddings")->find("base64"), nullptr);

  const std::string large = R"({"texts":[")" + std::string(20'000, 'x') + "\"]";
  EXPECT_EQ(fixture.post("/v2/embed", large + "}").status, 200);
  EXPECT_EQ(fixture.post("/v2/embed", large + R"(,"truncate":"START"})").status, 200);
  EXPECT_EQ(fixture.post("/v2/embed", large + R"(,"truncate":"NONE"})").status, 400);
  const std::pair<const char*, const char*> refused[] = {
      {R"({})", "texts"},
      {R"({"texts":"Hello"})", "texts"},
      {R"({"texts":[]})", "texts"},
      {R"({"texts":[""]})", "texts[0]"},
      {R"({"texts":["a"],"embedding_types":["int8"]})", "embedding_types[0]"},
      {R"({"texts":["a"],"truncate":"MIDDLE"})", "truncate"},
      {R"({"texts":["a"],"output_dimension":100000})", "output_dimension"},
      {R"({"images":["data:"]})", "images"},
  };
  for (const auto& [request, param] : refused) {
    const net::HttpResponse answer = fixture.post("/v2/embed", request);
    EXPECT_EQ(answer.status, 400) << request;
    EXPECT_EQ(parsed(answer.body).find("error")->string("param"), param) << answer.body;
  }
}

TEST(Embeddings, RerankingIsReranking) {
  ServerFixture fixture(kScript, {});
  for (const char* path : {"/v1/rerank", "/reranking", "/v1/reranking"}) {
    EXPECT_EQ(fixture.post(path, R"({"query":"a","documents":["b"]})").status, 200) << path;
  }
}

TEST(Embeddings, PoolingChangesThem) {
  ServerFixture fixture(kScript, {});
  const auto last = embedded(fixture, R"({"input":"ab"})");
  EXPECT_EQ(embedded(fixture, R"({"input":"ab","pooling":"last"})"), last);
  EXPECT_NE(embedded(fixture, R"({"input":"ab","pooling":"mean"})"), last);
  ServerFixture::Options options;
  options.model = [](ServedModel& model) { model.pooling = request::Pooling::kMean; };
  ServerFixture mean_fixture(kScript, std::move(options));
  EXPECT_EQ(embedded(mean_fixture, R"({"input":"ab"})"),
            embedded(fixture, R"({"input":"ab","pooling":"mean"})"));
}

TEST(Embeddings, FewerDimensionsAreTheFirstOnesOfLengthOne) {
  ServerFixture fixture(kScript, {});
  const auto whole = embedded(fixture, R"({"input":"Hello"})");
  const auto few = embedded(fixture, R"({"input":"Hello","dimensions":5})");
  ASSERT_EQ(few[0].size(), 5u);
  EXPECT_NEAR(length(few[0]), 1.0, 1e-6);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_NEAR(few[0][i] / few[0][0], whole[0][i] / whole[0][0], 1e-4);
  }
}

TEST(Embeddings, Base64HoldsTheSameFloats) {
  ServerFixture fixture(kScript, {});
  const auto floats = embedded(fixture, R"({"input":"Hello"})");
  const Json body = parsed(
      fixture.post("/v1/embeddings", R"({"input":"Hello","encoding_format":"base64"})").body);
  std::string bytes;
  for (const double value : floats[0]) {
    const auto narrow = static_cast<float>(value);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  EXPECT_EQ(body.find("data")->as_array()[0].string("embedding"), base::base64(bytes));
}

// More than fit into the queue: they are held back here.
TEST(Embeddings, AThousandInputsAreOneRequest) {
  ServerFixture::Options options;
  options.engine.inbox_max = 40;
  ServerFixture fixture(kScript, std::move(options));
  std::string inputs;
  for (int i = 0; i < 1000; ++i)
    inputs += (i > 0 ? "," : "") + ("\"text " + std::to_string(i)) + "\"";
  const auto vectors = embedded(fixture, R"({"input":[)" + inputs + "]}");
  ASSERT_EQ(vectors.size(), 1000u);
  EXPECT_EQ(vectors[7], embedded(fixture, R"({"input":"text 7"})")[0]);
  EXPECT_EQ(vectors[999], embedded(fixture, R"({"input":"text 999"})")[0]);
  // A reader sees its end a moment before the statistics have it.
  for (int i = 0; i < 1000 && !fixture.engine().ledger().clean(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(fixture.engine().ledger().clean());
}

TEST(Embeddings, RefusesWhatItCannotObey) {
  ServerFixture fixture(kScript, {});
  std::string many = "\"x\"";
  for (int i = 0; i < 2048; ++i) many += ",\"x\"";
  const std::vector<std::pair<std::string, std::string>> refused = {
      {R"({})", "input"},
      {R"({"input":""})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":[[]]})", "input[0]"},
      {R"({"input":["a",""]})", "input[1]"},
      {R"({"input":7})", "input"},
      {R"({"input":[-1]})", "input[0]"},
      {R"({"input":[2147483648]})", "input[0]"},
      {R"({"input":[1.5]})", "input[0]"},
      {R"({"input":[[3],[99999999]]})", "input[1][0]"},
      {R"({"input":[200006]})", "input"},  // a control token
      {R"({"input":[)" + many + "]}", "input"},
      {R"({"input":"a","dimensions":0})", "dimensions"},
      {R"({"input":"a","dimensions":65})", "dimensions"},
      {R"({"input":"a","encoding_format":"hex"})", "encoding_format"},
      {R"({"input":"a","pooling":"max"})", "pooling"},
      {R"({"input":"a","stream":true})", "stream"},
      {R"({"input":")" + std::string(65, 'q') + "\"}", "input[0]"},
  };
  for (const auto& [request, param] : refused) {
    const net::HttpResponse response = fixture.post("/v1/embeddings", request);
    EXPECT_EQ(response.status, 400) << request.substr(0, 80);
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), param) << response.body;
  }
  EXPECT_EQ(fixture.post("/v1/embeddings", R"({"input":"a","model":"other"})").status, 404);
  // As long as the context.
  EXPECT_EQ(embedded(fixture, R"({"input":")" + std::string(64, 'q') + "\"}").size(), 1u);
}

TEST(Embeddings, AnEngineThatMakesNoneSaysSo) {
  ServerFixture::Options options;
  options.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.capacity.pooled_sequences_max = executor.capacity.embedding_size = 0;
  };
  ServerFixture fixture(kScript, std::move(options));
  const net::HttpResponse response = fixture.post("/v1/embeddings", R"({"input":"a"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(parsed(response.body).find("error")->string("code"), "unsupported");
}

// More than one step's slots: those that wait meet it.
TEST(Embeddings, ASlowEngineMeetsTheDeadline) {
  ServerFixture fixture(R"({"step_ms": 150, "rules": [{"when": "", "then": "x"}]})", {});
  std::string inputs = "\"x\"";
  for (int i = 0; i < 60; ++i) inputs += ",\"x\"";
  net::HttpCall call = fixture.call("POST", "/v1/embeddings", R"({"input":[)" + inputs + "]}");
  call.headers.add("x-request-timeout-ms", "50");
  EXPECT_EQ(fixture.fetch(call).status, 408);
}

TEST(Rerank, TheNearestDocumentComesFirst) {
  ServerFixture fixture(kScript, {});
  const std::string request =
      R"({"query":"abcabc","documents":["xyz","abcabc",{"text":"abcxyz"}],"pooling":"mean")";
  const Json body = parsed(fixture.post("/v1/rerank", request + "}").body);
  const Json::Array& results = body.find("results")->as_array();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].integer("index"), 1);
  EXPECT_NEAR(*results[0].number("relevance_score"), 1.0, 1e-6);
  EXPECT_EQ(results[1].integer("index"), 2);
  EXPECT_EQ(results[1].find("document")->string("text"), "abcxyz");
  EXPECT_GT(*results[1].number("relevance_score"), *results[2].number("relevance_score"));
  EXPECT_EQ(body.find("usage")->integer("total_tokens"), 6 + 3 + 6 + 6);

  const Json top =
      parsed(fixture.post("/v2/rerank", request + R"(,"top_n":1,"return_documents":false})").body);
  ASSERT_EQ(top.find("results")->as_array().size(), 1u);
  EXPECT_EQ(top.find("results")->as_array()[0].find("document"), nullptr);
  for (const std::string bad :
       {R"({"documents":["a"]})", R"({"query":"","documents":["a"]})", R"({"query":"a"})",
        R"({"query":"a","documents":[]})", R"({"query":"a","documents":[{"image":"x"}]})",
        R"({"query":"a","documents":["b"],"top_n":-1})"}) {
    EXPECT_EQ(fixture.post("/rerank", bad).status, 400) << bad;
  }
}

// One document that is too long is cut as /v2/embed cuts it, and spoils nothing.
TEST(Rerank, B5_LongDocumentsAreTruncated) {
  ServerFixture::Options options;
  options.model = [](ServedModel& model) { model.context_max = 64; };
  ServerFixture fixture(kScript, std::move(options));
  const auto ranked = [&](const std::string& path, const std::string& more) {
    const std::string documents = "\"abcabc" + std::string(500, 'x') + R"(","abcabc","zzz")";
    const net::HttpResponse response = fixture.post(
        path, R"({"query":"abcabc","pooling":"mean","documents":[)" + documents + "]" + more + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return parsed(response.body);
  };
  const Json whole = ranked("/v2/rerank", "");
  EXPECT_EQ(whole.find("usage")->integer("total_tokens"), 6 + 64 + 6 + 3);
  EXPECT_EQ(whole.find("results")->as_array().at(0).integer("index"), 1);

  // Of six tokens the first document is the query itself.
  const Json cut = ranked("/v2/rerank", R"(,"max_tokens_per_doc":6)");
  EXPECT_EQ(cut.find("usage")->integer("total_tokens"), 6 + 6 + 6 + 3);
  const Json& first = cut.find("results")->as_array().at(0);
  EXPECT_EQ(first.integer("index"), 0);
  EXPECT_NEAR(*first.number("relevance_score"), 1.0, 1e-6);

  const Json& meta = *cut.find("meta");
  EXPECT_EQ(meta.find("api_version")->string("version"), "2");
  EXPECT_EQ(meta.find("billed_units")->integer("search_units"), 1);
  EXPECT_EQ(meta.find("tokens")->integer("input_tokens"), 6 + 6 + 6 + 3);
  EXPECT_EQ(ranked("/v1/rerank", "").find("meta")->find("api_version")->string("version"), "1");
  for (const char* bad : {"0", "-1", "\"9\"", "1.5"}) {
    const net::HttpResponse response = fixture.post(
        "/v2/rerank",
        std::string(R"({"query":"a","documents":["b"],"max_tokens_per_doc":)") + bad + "}");
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), "max_tokens_per_doc");
  }
  // A query is never cut: what its beginning says of documents may be the opposite.
  for (const char* path : {"/rerank", "/v2/rerank"}) {
    const net::HttpResponse response =
        fixture.post(path, R"({"query":")" + std::string(65, 'q') + R"(","documents":["b"]})");
    EXPECT_EQ(response.status, 400);
    const Json error = *parsed(response.body).find("error");
    EXPECT_EQ(error.string("param"), "query");
    EXPECT_THAT(error.string("message").value_or(""), testing::HasSubstr("64 tokens"));
  }
}

TEST(Rerank, B5_EmbedObeysMaxTokens) {
  ServerFixture fixture(kScript, {});
  const net::HttpResponse response =
      fixture.post("/v2/embed", R"({"texts":["abcabc"],"max_tokens":4})");
  EXPECT_EQ(parsed(response.body).find("meta")->find("billed_units")->integer("input_tokens"), 4);
}

TEST(Score, OneWithManyOrOneByOne) {
  ServerFixture fixture(kScript, {});
  const auto scores = [&](const std::string& request) {
    const net::HttpResponse response = fixture.post("/v1/score", request);
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<double> found;
    const Json body = parsed(response.body);
    for (const Json& item : body.find("data")->as_array()) {
      found.push_back(*item.number("score"));
    }
    return found;
  };
  const auto many = scores(R"({"text_1":"ab","text_2":["ab","cd"]})");
  ASSERT_EQ(many.size(), 2u);
  EXPECT_NEAR(many[0], 1.0, 1e-6);
  EXPECT_LT(many[1], 0.9);
  const auto pairs = scores(R"({"queries":["ab","cd"],"documents":["cd","cd"]})");
  EXPECT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0], many[1]);
  EXPECT_NEAR(pairs[1], 1.0, 1e-6);
  EXPECT_EQ(fixture.post("/score", R"({"text_1":["a","b"],"text_2":["a","b","c"]})").status, 400);
  // Errors name the field that the body has.
  const std::string large(5000, 'q');
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({"text_1":")" + large + R"(","text_2":"a"})", "text_1"},
           {R"({"queries":")" + large + R"(","documents":"a"})", "queries"},
           {R"({"queries":["a",")" + large + R"("],"documents":["a","a"]})", "queries[1]"},
           {R"({"queries":"a","documents":["a",")" + large + R"("]})", "documents[1]"}}) {
    const net::HttpResponse response = fixture.post("/score", body);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(parsed(response.body).find("error")->string("param"), param) << response.body;
  }
}

}  // namespace
}  // namespace pelton::server

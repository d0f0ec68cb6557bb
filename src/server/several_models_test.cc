// Two models behind one server, of different vocabularies and chat formats: who is answered by
// which, what is said where no model is meant, and what is said of each.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/tiny_chatml_tokenizer.h"
#include "net/test_websocket.h"
#include "server/grpc_fixture.h"
#include "server/ledger_report.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kHarmony = R"({"rules": [
  {"when": "", "then": "<|channel|>analysis<|message|>I am tiny<|end|><|start|>assistant<|channel|>final<|message|>From tiny."}]})";
constexpr std::string_view kChatMl = R"({"rules": [
  {"when": "", "then": "<think>\nI am small\n</think>\n\nFrom small."}]})";

// The second model, beside the fixture's own ("tiny", alias "org/alias"): "small", alias "chatml".
template <typename Fixture>
class Beside {
 public:
  explicit Beside(Fixture& fixture)
      : executor_(*scripted_executor(kChatMl, "chatml.json", tokenizer_, clock_)),
        engine_({}, executor_, clock_, fixture.log()),
        server_(fixture.server()) {}

  void load() {
    server_.services().catalogue.serve(std::shared_ptr<ServedModel>(
        new ServedModel{.id = "small",
                        .aliases = {"chatml"},
                        .context_max = 2048,
                        .vocab_size = tokenizer_.vocab_size(),
                        .tokenizer = tokenizer_,
                        .chat = chat::format_of(tokenizer_).value(),
                        .engine = engine_,
                        .current_date = "2025-06-28",
                        .state = std::make_unique<ModelState>(clock_)}));
  }
  engine::Engine& engine() { return engine_; }

 private:
  const base::SystemClock clock_;
  const tokenizer::Tokenizer tokenizer_ = chat::tiny_chatml_tokenizer();
  engine::ModelledExecutor executor_;
  engine::Engine engine_;
  Server& server_;
};

class SeveralModels : public testing::Test {
 protected:
  SeveralModels() { small_.load(); }

  std::string chat(std::string_view model, std::string_view more = "") {
    return post("/v1/chat/completions", R"("messages":[{"role":"user","content":"hi"}])", model,
                more);
  }
  std::string post(const std::string& path, std::string_view fields, std::string_view model,
                   std::string_view more = "") {
    std::string body = "{" + std::string(fields);
    if (!model.empty()) body += R"(,"model":")" + std::string(model) + "\"";
    response_ = fixture_.post(path, body + std::string(more) + "}");
    return response_.body;
  }
  static Json message_of(const std::string& body) {
    const Json json = parsed(body);
    const Json* choices = json.find("choices");
    EXPECT_NE(choices, nullptr) << body;
    return choices == nullptr ? Json() : *choices->as_array().at(0).find("message");
  }
  static std::string code_of(const std::string& body) {
    const Json json = parsed(body);
    const Json* error = json.find("error");
    return error == nullptr ? "" : error->string("code").value_or("");
  }

  // The engines go after the server, which holds the models.
  ServerFixture fixture_{kHarmony, {}};
  Beside<ServerFixture> small_{fixture_};
  net::HttpResponse response_;
};

// One that failed is named to who asks for it, and to nobody else.
TEST(NoModel, A503NamesTheModelThatWasMeant) {
  ServerFixture fixture(kHarmony, {});
  Services& services = fixture.server().services();
  for (const char* id : {"broken", "other"}) {
    ASSERT_TRUE(
        services.catalogue.begin_load({.id = id, .aliases = {}}, ModelCatalogue::When::kAtRunTime)
            .ok());
    services.catalogue.fail(id, {ErrorCode::kBadCheckpoint, "torn", ""});
  }
  services.catalogue.begin_unload("tiny");
  services.catalogue.remove("tiny");
  EXPECT_THAT(services.no_model("other").message, HasSubstr("'other' could not be loaded"));
  const api::ApiError unknown = services.no_model("gpt-4o");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.message, AllOf(HasSubstr("gpt-4o"), Not(HasSubstr("broken"))));
  const api::ApiError unnamed = services.no_model("");
  EXPECT_EQ(unnamed.status, 503);
  EXPECT_THAT(unnamed.message, Not(HasSubstr("broken")));
}

TEST_F(SeveralModels, EachAnswersByItsNameInItsOwnFormat) {
  for (const std::string_view name : {"tiny", "org/alias"}) {
    const std::string body = chat(name);
    EXPECT_EQ(message_of(body).string("content"), "From tiny.");
    EXPECT_EQ(message_of(body).string("reasoning_content"), "I am tiny");
    EXPECT_EQ(parsed(body).string("model"), name);
  }
  for (const std::string_view name : {"small", "chatml"}) {
    const std::string body = chat(name);
    EXPECT_EQ(message_of(body).string("content"), "From small.");
    EXPECT_EQ(message_of(body).string("reasoning_content"), "I am small");
    EXPECT_EQ(parsed(body).string("model"), name);
  }
}

TEST_F(SeveralModels, EveryApiChoosesByName) {
  const auto both = [&](const std::string& path, std::string_view fields) {
    const std::string tiny = post(path, fields, "tiny");
    EXPECT_EQ(response_.status, 200) << path << tiny;
    const std::string small = post(path, fields, "small");
    EXPECT_EQ(response_.status, 200) << path << small;
    post(path, fields, "nobody");
    EXPECT_EQ(response_.status, 404) << path << response_.body;
    post(path, fields, "");
    EXPECT_EQ(response_.status, 400) << path << response_.body;
    EXPECT_THAT(response_.body, AllOf(HasSubstr("tiny"), HasSubstr("small"))) << path;
    return std::pair(tiny, small);
  };
  const auto differ = [&](const std::string& path, std::string_view fields) {
    const auto [tiny, small] = both(path, fields);
    EXPECT_NE(tiny, small) << path;
  };
  constexpr std::string_view kMessages = R"("messages":[{"role":"user","content":"hi"}])";
  differ("/v1/chat/completions", kMessages);
  differ("/v1/chat/completions/input_tokens", kMessages);
  differ("/v1/chat/completions/render", kMessages);
  differ("/v1/completions", R"("prompt":"hi")");
  differ("/v1/completions/render", R"("prompt":"hi there")");
  differ("/v1/responses", R"("input":"hi")");
  differ("/v1/responses/input_tokens", R"("input":"hi")");
  differ("/v1/messages", R"("max_tokens":9,"messages":[{"role":"user","content":"hi"}])");
  differ("/v1/messages/count_tokens", kMessages);
  differ("/inference/v1/generate", R"("token_ids":[72],"sampling_params":{"max_tokens":3})");
  differ("/v1/embeddings", R"("input":"hi")");
  differ("/v2/embed", R"("texts":["hi"],"input_type":"classification")");
  differ("/v1/rerank", R"("query":"hi","documents":["a","b"])");
  differ("/v1/score", R"("text_1":"hi","text_2":"a")");
  differ("/tokenize", R"("messages":[{"role":"user","content":"hi"}])");
  both("/detokenize", R"("tokens":[72])");
  differ("/invocations", kMessages);
}

TEST_F(SeveralModels, WhatIsNoModelIsRefusedByName) {
  chat("nobody");
  EXPECT_EQ(response_.status, 404);
  EXPECT_EQ(code_of(response_.body), "model_not_found");
  EXPECT_THAT(response_.body, HasSubstr("nobody"));
  chat("");
  EXPECT_EQ(response_.status, 400);
  EXPECT_EQ(code_of(response_.body), "model_missing");
  chat("", R"(,"model":7)");
  EXPECT_EQ(response_.status, 400);
  EXPECT_THAT(response_.body, HasSubstr("'model' must be a string, not an integer"));
  for (const char* const path : {"/v1/chat/completions", "/invocations"}) {
    post(path, R"("messages":[{"role":"user","content":"hi"}])", "tiny", R"(,"model":"nobody")");
    EXPECT_EQ(response_.status, 400) << path;
    EXPECT_THAT(response_.body, HasSubstr("'model' stands twice")) << path;
  }
  response_ = fixture_.post("/v1/chat/completions", R"({"model":"tiny",)");
  EXPECT_EQ(response_.status, 400);
  EXPECT_THAT(response_.body, Not(HasSubstr("model_missing"))) << "it is no JSON";
  chat("tiny", R"(,"model":"small")");
  EXPECT_EQ(response_.status, 400);
  EXPECT_THAT(response_.body, HasSubstr("'model' stands twice"));
  EXPECT_EQ(message_of(chat("", R"(,"mod\u0065l":"small")")).string("content"), "From small.");
  // Another's "model" is not the request's.
  chat("", R"(,"metadata":{"model":"small"})");
  EXPECT_EQ(code_of(response_.body), "model_missing");
}

TEST_F(SeveralModels, AreListed) {
  const std::string list = fixture_.get("/v1/models").body;
  std::vector<std::string> ids;
  const Json listed = parsed(list);
  for (const Json& card : listed.find("data")->as_array()) {
    ids.push_back(card.string("id").value());
  }
  EXPECT_THAT(ids, ElementsAre("tiny", "org/alias", "small", "chatml"));
  EXPECT_EQ(parsed(fixture_.get("/v1/models/chatml").body).string("root"), "small");
  EXPECT_EQ(fixture_.get("/v1/models/nobody").status, 404);
}

// A follow-up's own model may be another: then what the first one sampled are not its tokens.
TEST_F(SeveralModels, ATurnIsTheModelsOwn) {
  const std::string turns =
      R"("messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"From tiny."},)"
      R"({"role":"user","content":"again"}])";
  const std::string before = post("/v1/chat/completions/render", turns, "small");
  chat("tiny");
  chat("small");
  EXPECT_EQ(parsed(post("/v1/chat/completions/render", turns, "small")).find("token_ids")->dump(),
            parsed(before).find("token_ids")->dump());
}

// A frame says which model it is for, as a body does.
TEST_F(SeveralModels, AFrameOfAWebSocketChoosesByName) {
  net::TestWebSocket socket(fixture_.http().port(), "/v1/responses");
  ASSERT_TRUE(socket.open()) << socket.head();
  for (const char* const model : {"tiny", "small"}) {
    socket.text(fmt::format(R"({{"type":"response.create","model":"{}","input":"hi"}})", model));
    EXPECT_EQ(parsed(socket.read().payload).string("type").value(), "response.created") << model;
    while (parsed(socket.read().payload).string("type").value() != "response.completed") {
    }
  }
  socket.text(R"({"type":"response.create","model":"nope","input":"hi"})");
  EXPECT_THAT(std::string(socket.read().payload), testing::HasSubstr("nope"));
}

// Rendered anew, in its own format: the first one's tokens mean something else here.
TEST_F(SeveralModels, AResponseGoesOnWithAnotherModel) {
  const std::string id =
      parsed(post("/v1/responses", R"("input":"hi")", "tiny")).string("id").value();
  const std::string follow = R"("input":"again","previous_response_id":")" + id + "\"";
  const auto count = [&](const std::string& fields) {
    const std::string body = post("/v1/responses/input_tokens", fields, "small");
    EXPECT_EQ(response_.status, 200) << body;
    return parsed(body).integer("input_tokens");
  };
  EXPECT_EQ(
      count(follow),
      count(R"("input":[{"role":"user","content":"hi"},)"
            R"({"role":"assistant","content":"From tiny."},{"role":"user","content":"again"}])"));
}

TEST_F(SeveralModels, FormatsAreCompiledForEachVocabulary) {
  constexpr std::string_view kFormat =
      R"(,"max_tokens":40,"response_format":{"type":"json_schema","json_schema":{"name":"n",)"
      R"("schema":{"enum":["yes"]}}})";
  const auto grammars = [&](std::string_view name) {
    return fixture_.server().services().catalogue.find(name)->state->grammars.entry_count();
  };
  chat("tiny", kFormat);
  EXPECT_EQ(grammars("tiny"), 1u);
  EXPECT_EQ(grammars("small"), 0u);
  chat("small", kFormat);
  EXPECT_EQ(grammars("tiny"), 1u);
  EXPECT_EQ(grammars("small"), 1u);
}

TEST_F(SeveralModels, MetricsAreEachModelsOwn) {
  chat("tiny");
  chat("small");
  chat("small");
  const std::string page = fixture_.get("/metrics").body;
  const auto count = [&](std::string_view model, int answers) {
    EXPECT_THAT(page,
                HasSubstr("vllm:request_success_total{model_name=\"" + std::string(model) +
                          "\",engine=\"0\",finished_reason=\"stop\"} " + std::to_string(answers)));
  };
  count("tiny", 1);
  count("small", 2);
}

TEST_F(SeveralModels, LedgerAndServerInfoTellOfEach) {
  chat("small");
  const Json ledger = parsed(ledger_report(fixture_.server().services(), 0));
  EXPECT_NE(ledger.find("engines")->find("tiny"), nullptr);
  EXPECT_NE(ledger.find("engines")->find("small"), nullptr);
  const Json info = parsed(fixture_.get("/server_info").body);
  ASSERT_EQ(info.find("models")->as_array().size(), 2u);
  EXPECT_EQ(info.find("models")->as_array()[1].find("model")->string("id"), "small");
}

TEST_F(SeveralModels, OneThatIsDamagedIsNamedAndTheOtherAnswers) {
  fixture_.server().services().catalogue.find("small")->state->model_health = ModelHealth::kDoubted;
  EXPECT_EQ(fixture_.get("/health").status, 200);
  EXPECT_EQ(fixture_.get("/ready").status, 503);
  EXPECT_THAT(fixture_.get("/ready").body, HasSubstr("'small'"));
  fixture_.server().services().catalogue.find("small")->state->model_health = ModelHealth::kDamaged;
  EXPECT_EQ(fixture_.get("/health").status, 503);
  EXPECT_THAT(fixture_.get("/health").body, HasSubstr("'small'"));
  chat("small");
  EXPECT_EQ(response_.status, 503);
  EXPECT_EQ(message_of(chat("tiny")).string("content"), "From tiny.");
}

TEST_F(SeveralModels, WhatIsUnloadedIsNotFoundAndWhoIsAnsweredHoldsIt) {
  std::shared_ptr<const ServedModel> hold = fixture_.server().services().catalogue.find("small");
  fixture_.server().services().catalogue.begin_unload("small");
  chat("small");
  EXPECT_EQ(response_.status, 404);
  chat("");
  EXPECT_EQ(response_.status, 400) << "whoever named none did not mean the one that is left";
  EXPECT_EQ(hold.use_count(), 1) << "no answer that is over holds it";
}

TEST(SeveralModelsGrpc, EachAnswersByItsName) {
  GrpcFixtureOf grpc(kHarmony);
  Beside<ServerFixture> small(grpc.fixture);
  small.load();
  v1::GenerateRequest request = grpc_chat("hi");
  request.set_model("small");
  EXPECT_EQ(grpc.generate(request).text, "From small.");
  request.set_model("org/alias");
  EXPECT_EQ(grpc.generate(request).text, "From tiny.");
  request.set_model("nobody");
  EXPECT_EQ(grpc.generate(request).error_code, "model_not_found");
  request.clear_model();
  EXPECT_EQ(grpc.generate(request).error_code, "model_missing");
  v1::TokenizeRequest text;
  text.set_text("hi");
  text.set_model("small");
  grpc::ClientContext context;
  v1::TokenizeReply reply;
  EXPECT_TRUE(grpc.stub->Tokenize(&context, text, &reply).ok());
  EXPECT_EQ(reply.context_max(), 2048);
}

}  // namespace
}  // namespace pelton::server

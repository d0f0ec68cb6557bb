// Published templates and dialects, case by case. Neither cases nor templates are this project's:
// the tests are skipped unless PELTON_GOLDEN_CHAT names the folder of dialects.json and
// conversations.json, and for the latter PELTON_VOCABULARIES the folder that its paths begin in.
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/byte_tokenizer.h"
#include "chat/checked_reply.h"
#include "chat/dialect_parser.h"
#include "chat/prompt_template.h"

namespace pelton::chat {
namespace {

// Nothing: not named.
std::optional<Json> golden(const std::string& name) {
  const char* const folder = std::getenv("PELTON_GOLDEN_CHAT");
  if (folder == nullptr) return std::nullopt;
  return Json::parse(base::read_file(std::string(folder) + "/" + name, 1 << 24).value()).value();
}

void expect_as(const Reply& reply, const Json& expected) {
  EXPECT_EQ(reply.reasoning.value_or(""), expected.string("reasoning_content").value());
  EXPECT_EQ(reply.content.value_or(""), expected.string("content").value());
  const Json::Array& calls = expected.find("tool_calls")->as_array();
  ASSERT_EQ(reply.tool_calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(reply.tool_calls[i].name, calls[i].string("name").value());
    EXPECT_EQ(reply.tool_calls[i].arguments, calls[i].string("arguments").value());
  }
}

// Byte by byte, and in two at every byte.
TEST(GoldenDialects, AreReadAsExpected) {
  const std::optional<Json> file = golden("dialects.json");
  if (!file) GTEST_SKIP() << "PELTON_GOLDEN_CHAT is not set";
  const auto functions = std::make_shared<const std::vector<FunctionTool>>(
      std::vector<FunctionTool>{{.name = "write",
                                 .description = {},
                                 .parameters = Json::parse(R"({"properties":{
        "path":{"type":"string"},"text":{"type":"string"},"n":{"type":"integer"}}})")
                                                   .value()}});
  for (const Json& row : file->find("cases")->as_array()) {
    const std::string name = row.string("dialect").value();
    const std::string output = row.string("output").value();
    SCOPED_TRACE(name + ": " + output);
    const bool brackets = output.find("[THINK]") != std::string::npos;
    const bool opened = row.boolean("prompt_ends_in_think").value_or(false);
    const std::string text = (opened ? "<think>\n" : "") + output;
    const bool is_short = row.string("finish_reason") == "length";
    const auto expect_reply = [&](const tokenizer::Tokenizer& tokenizer,
                                  std::vector<TokenId> tokens) {
      Dialect dialect = make_dialect(*find_reasoning_syntax(brackets ? "mistral" : "think"),
                                     *find_call_syntax(name), tokenizer);
      dialect.stops = {256};
      if (!is_short) tokens.push_back(256);
      ParserOptions options(Calls::kRead);
      options.functions = functions;
      expect_as(checked_reply(
                    ReplyBuilder(std::make_unique<DialectParser>(tokenizer, dialect, options), {}),
                    tokens, is_short ? StopCause::kLength : StopCause::kStopToken),
                *row.find("expected"));
    };
    const tokenizer::Tokenizer bytes = byte_tokenizer(false);
    expect_reply(bytes, bytes.encode(text));
    for (size_t cut = 0; cut <= text.size() && !testing::Test::HasFailure(); ++cut) {
      const CutText two = cut_text(text, cut);
      expect_reply(two.tokenizer, two.tokens);
    }
  }
}

// What the cases say, and nothing else.
jinja::Dict variables_of(const Json& conversation, const Json& file) {
  jinja::Dict out;
  const auto set = [&](std::string_view key, jinja::Value value) {
    out.members.emplace_back(jinja::Value::own(key), std::move(value));
  };
  set("bos_token", jinja::Value::own(file.string("bos_token").value()));
  set("eos_token", jinja::Value::own(file.string("eos_token").value()));
  for (const Json::Member& member : conversation.as_object()) {
    set(member.key, jinja::Value::from_json(member.value));
  }
  return out;
}

TEST(GoldenTemplates, ConversationsAreWrittenByteForByte) {
  const std::optional<Json> file = golden("conversations.json");
  const char* const templates = std::getenv("PELTON_VOCABULARIES");
  if (!file || templates == nullptr) GTEST_SKIP() << "no folders are named";
  int compared = 0;
  for (const Json::Member& published : file->find("templates")->as_object()) {
    const std::string path = std::string(templates) + "/" + published.value.string("file").value();
    const auto made = jinja::Template::compile(base::read_file(path, 1 << 20).value());
    ASSERT_TRUE(made.ok()) << path << ": " << made.error().message;
    for (const Json::Member& row : published.value.find("results")->as_object()) {
      SCOPED_TRACE(published.key + ", " + row.key);
      const Json& conversation = *file->find("conversations")->find(row.key);
      const auto text = made->render(variables_of(conversation, *file),
                                     {.limits = {}, .unix_seconds = 1'772'719'629});
      ++compared;
      const std::optional<std::string> expected = row.value.string("expected");
      if (!expected) {
        EXPECT_FALSE(text.ok()) << row.value.dump() << "\n" << text->bytes();
      } else {
        ASSERT_TRUE(text.ok()) << text.error().message;
        EXPECT_EQ(text->bytes(), *expected);
      }
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace pelton::chat

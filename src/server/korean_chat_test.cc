// A chat in Korean, whole and streamed, whose tokens cut characters in every way that there is:
// what was said goes into the prompt byte for byte, and what is answered comes out of it so.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/utf8.h"
#include "server/chat_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kSystem = "당신은 한국어로만 대답하는 조수입니다.";
constexpr std::string_view kUser = "안녕하세요? 오늘 날씨는 어때요 😀";
constexpr std::string_view kAnswer = "서울은 맑고, 기온은 섭씨 21도입니다. 즐거운 하루 되세요!";

// The answer's bytes in pieces of `size`, the first one shorter by `shift`: with 1 to 4 and every
// shift each character of three bytes is cut in each of its places, and tokens hold the end of one
// and the beginning of the next.
std::vector<std::string> pieces(size_t size, size_t shift) {
  std::vector<std::string> all;
  std::string_view left = kAnswer;
  for (size_t next = size - shift; !left.empty(); next = size) {
    all.emplace_back(left.substr(0, next));
    left.remove_prefix(std::min(next, left.size()));
  }
  return all;
}

// chat::tiny_tokenizer's, and one token for each of these texts.
tokenizer::Tokenizer with_tokens(const std::vector<std::string>& texts) {
  std::string ranks;
  int rank = 0;
  std::set<std::string> known;
  const auto add = [&](std::string_view bytes) {
    if (!known.insert(std::string(bytes)).second) return;
    ranks += chat::base64(bytes) + ' ' + std::to_string(rank++) + '\n';
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const std::string_view word : chat::kTinyWords) add(word);
  for (const std::string& text : texts) add(text);
  return tokenizer::Tokenizer::from_tiktoken(ranks, "tiny").value();
}

TokenId token_that_is(const tokenizer::Tokenizer& tokenizer, std::string_view bytes) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.bytes(id) == bytes && !tokenizer.is_special(id)) return id;
  }
  ADD_FAILURE() << "no such token";
  return 0;
}

ServerFixture::Options answering_in(const std::vector<std::string>& texts) {
  ServerFixture::Options options;
  options.tokenizer = [texts] { return with_tokens(texts); };
  const tokenizer::Tokenizer tokenizer = with_tokens(texts);
  std::vector<TokenId> answer = tokenizer.encode_with_special("<|channel|>final<|message|>");
  for (const std::string& text : texts) answer.push_back(token_that_is(tokenizer, text));
  answer.push_back(*tokenizer.special_id("<|return|>"));
  options.executor = [answer](engine::ModelledExecutor::Options& executor) {
    executor.next_token = [answer](const engine::ModelledExecutor::Seen& seen) {
      const size_t said = seen.tokens.size() - static_cast<size_t>(seen.prompt_count);
      return answer[std::min(said, answer.size() - 1)];
    };
  };
  return options;
}

std::string body(std::string_view more) {
  return fmt::format(
      R"({{"messages":[{{"role":"system","content":"{}"}},{{"role":"user","content":"{}"}}]{}}})",
      kSystem, kUser, more);
}

TEST(KoreanChat, ComesBackWholeHoweverTokensCutIt) {
  for (size_t size = 1; size <= 4; ++size) {
    for (size_t shift = 0; shift < size; ++shift) {
      SCOPED_TRACE(fmt::format("pieces of {} bytes, the first one {} shorter", size, shift));
      ServerFixture fixture(R"({"rules":[{"when":"","then":"x"}]})",
                            answering_in(pieces(size, shift)));
      const net::HttpResponse whole = fixture.post("/v1/chat/completions", body(""));
      ASSERT_EQ(whole.status, 200) << whole.body;
      const Json json = parsed(whole.body);
      const Json& choice = json.find("choices")->as_array().at(0);
      EXPECT_EQ(choice.find("message")->string("content"), kAnswer);
      const net::HttpResponse stream =
          fixture.post("/v1/chat/completions", body(R"(,"stream":true)"));
      EXPECT_TRUE(base::is_valid_utf8(stream.body));
      EXPECT_EQ(stream.body.find("\xEF\xBF\xBD"), std::string::npos)
          << "half a character was shown";
      EXPECT_EQ(streamed_text(stream.body).content, kAnswer);
      const Json message = parsed(
          fixture
              .post("/v1/messages",
                    fmt::format(
                        R"({{"max_tokens":200,"messages":[{{"role":"user","content":"{}"}}]}})",
                        kUser))
              .body);
      EXPECT_EQ(message.find("content")->as_array().at(0).string("text"), kAnswer);
      const Json response = parsed(
          fixture.post("/v1/responses", fmt::format(R"({{"input":"{}","store":false}})", kUser))
              .body);
      EXPECT_NE(response.dump().find(kAnswer), std::string::npos);
    }
  }
}

TEST(KoreanChat, PromptsHoldWhatWasSaidByteForByte) {
  ServerFixture fixture(R"({"rules":[{"when":"","then":"x"}]})", answering_in(pieces(2, 1)));
  const Json rendered = parsed(fixture.post("/v1/chat/completions/render", body("")).body);
  const std::string prompt = rendered.string("prompt").value_or("");
  EXPECT_THAT(prompt, testing::HasSubstr(std::string(kSystem)));
  EXPECT_THAT(prompt, testing::HasSubstr(std::string(kUser)));
}

}  // namespace
}  // namespace pelton::server

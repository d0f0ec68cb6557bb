#include "tokenizer/tekken_file.h"

#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/base64.h"
#include "base/json.h"

namespace pelton::tokenizer {
namespace {

constexpr size_t kFileBytesMax = size_t{128} << 20;

// Of files that do not list them.
constexpr std::string_view kControlTexts[] = {"<unk>",
                                              "<s>",
                                              "</s>",
                                              "[INST]",
                                              "[/INST]",
                                              "[AVAILABLE_TOOLS]",
                                              "[/AVAILABLE_TOOLS]",
                                              "[TOOL_RESULTS]",
                                              "[/TOOL_RESULTS]",
                                              "[TOOL_CALLS]"};

class TekkenReader {
 public:
  TekkenReader(const Json& file, const std::string& name) : file_(file), name_(name) {}

  Result<TokenizerParts> read() {
    const Json* config = file_.find("config");
    if (config == nullptr || !config->is_object()) return bad("config", "is not an object");
    const std::optional<std::string> pattern = config->string("pattern");
    if (!pattern || pattern->empty()) return bad("config.pattern", "is not there");
    TRY_ASSIGN(special_count_, count(*config, "default_num_special_tokens"));
    TRY_ASSIGN(const int size, count(*config, "default_vocab_size"));
    if (size <= special_count_) return bad("config.default_vocab_size", "has no room for tokens");
    TRY(read_special());
    TRY(read_ranks(size - special_count_));
    TokenLookup lookup(static_cast<size_t>(tokens_.size()));
    for (TokenId id = special_count_; id < tokens_.size(); ++id) {
      if (lookup.insert(tokens_, id) == kNoToken) continue;
      return bad(fmt::format("vocab[{}]", id - special_count_), "is there twice");
    }
    MergeTable merges = MergeTable::of_ranks(tokens_, lookup);
    PromptFrame frame;
    for (const AddedToken& token : added_) {
      if (token.text == "<s>") frame.begin = {token.id};
    }
    return TokenizerParts{.tokens = std::move(tokens_),
                          .lookup = std::move(lookup),
                          .merges = std::move(merges),
                          .whole_pieces_first = true,
                          .split_patterns = {*pattern},
                          .added = std::move(added_),
                          .frame = std::move(frame)};
  }

 private:
  Error bad(const std::string& field, const std::string& what) const {
    return bad_tokenizer(name_, field, what);
  }

  Result<int> count(const Json& config, const char* key) const {
    const std::optional<int64_t> value = config.integer(key);
    if (value && *value >= 1 && *value < kTokenIdsMax) return static_cast<int>(*value);
    return bad(fmt::format("config.{}", key),
               fmt::format("is not an integer from 1 to {}", kTokenIdsMax - 1));
  }

  // Ids below special_count_: by name, the others "<SPECIAL_20>".
  Result<void> read_special() {
    std::vector<std::string> texts(static_cast<size_t>(special_count_));
    const Json* listed = file_.find("special_tokens");
    if (listed != nullptr && listed->is_array()) {
      for (size_t i = 0; i < listed->as_array().size(); ++i) {
        const Json& token = listed->as_array()[i];
        const int64_t rank = token.integer("rank").value_or(-1);
        const std::string text = token.string("token_str").value_or("");
        const std::string field = fmt::format("special_tokens[{}]", i);
        if (rank < 0 || rank >= special_count_) return bad(field + ".rank", "is out of range");
        if (text.empty() || text.size() > kTokenBytesMax) return bad(field, "has no text");
        std::string& place = texts[static_cast<size_t>(rank)];
        if (!place.empty()) return bad(field + ".rank", fmt::format("{} is there twice", rank));
        place = text;
      }
    } else {
      for (size_t i = 0; i < std::size(kControlTexts) && i < texts.size(); ++i) {
        texts[i] = kControlTexts[i];
      }
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].empty()) texts[i] = fmt::format("<SPECIAL_{}>", i);
      const auto id = static_cast<TokenId>(i);
      if (!tokens_.set(id, texts[i])) return bad("special_tokens", "a rank is there twice");
      added_.push_back({.id = id, .text = std::move(texts[i]), .special = true});
    }
    return {};
  }

  // More ranks may be listed than the model has tokens for.
  Result<void> read_ranks(int wanted) {
    const Json* vocab = file_.find("vocab");
    if (vocab == nullptr || !vocab->is_array()) return bad("vocab", "is not an array");
    if (vocab->as_array().size() < static_cast<size_t>(wanted)) {
      return bad("vocab",
                 fmt::format("has {} tokens, expected {}", vocab->as_array().size(), wanted));
    }
    for (int i = 0; i < wanted; ++i) {
      const Json& token = vocab->as_array()[static_cast<size_t>(i)];
      const std::string field = fmt::format("vocab[{}]", i);
      if (token.integer("rank") != i) return bad(field + ".rank", fmt::format("is not {}", i));
      const std::optional<std::string> bytes =
          base::from_base64(token.string("token_bytes").value_or(""));
      if (!bytes || bytes->empty() || bytes->size() > kTokenBytesMax) {
        return bad(field + ".token_bytes",
                   fmt::format("is not base64 of 1 to {} bytes", kTokenBytesMax));
      }
      if (!tokens_.set(special_count_ + i, *bytes)) return bad(field, "is there twice");
    }
    return {};
  }

  const Json& file_;
  const std::string& name_;
  int special_count_ = 0;
  TokenBytes tokens_;
  std::vector<AddedToken> added_;
};

}  // namespace

Result<TokenizerParts> read_tekken_file(std::string_view text, const std::string& name) {
  if (text.size() > kFileBytesMax) {
    return bad_tokenizer(
        name, "size",
        fmt::format("{} bytes, the limit for a tekken.json is {}", text.size(), kFileBytesMax));
  }
  const Result<Json> file = Json::parse(text);
  if (!file.ok()) return bad_tokenizer(name, "file", file.error().message);
  return TekkenReader(*file, name).read();
}

}  // namespace pelton::tokenizer

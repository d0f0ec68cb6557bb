#include "server/fill_in_middle.h"

#include <optional>
#include <string_view>

namespace pelton::server {
namespace {

// What vocabularies call the three places. Without one for the middle the answer comes behind the
// text before it.
struct Format {
  std::string_view before;
  std::string_view after;
  std::string_view middle;
  bool suffix_first = false;
};

constexpr Format kFormats[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},        // SantaCoder
    {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>",
     "<\uFF5Cfim\u2581end\uFF5C>"},                                                   // DeepSeek
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},                                    // Code Llama
    {.before = "[PREFIX]", .after = "[SUFFIX]", .middle = "", .suffix_first = true},  // Codestral
};

// Of the same vocabularies: another file, or padding.
constexpr std::string_view kOtherStops[] = {"<|fim_pad|>", "<fim_pad>",          "<|file_sep|>",
                                            "<file_sep>",  "<|file_separator|>", "<|repo_name|>",
                                            "\u2581<EOT>"};

struct Markers {
  TokenId before;
  TokenId after;
  std::optional<TokenId> middle;
  bool suffix_first;
};

std::optional<TokenId> control_token(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  return text.empty() ? std::nullopt : tokenizer.special_id(text);
}

std::optional<Markers> find_markers(const tokenizer::Tokenizer& tokenizer) {
  for (const Format& format : kFormats) {
    const auto before = control_token(tokenizer, format.before);
    const auto after = control_token(tokenizer, format.after);
    const auto middle = control_token(tokenizer, format.middle);
    if (!before || !after || (!middle && !format.middle.empty())) continue;
    return Markers{*before, *after, middle, format.suffix_first};
  }
  return std::nullopt;
}

}  // namespace

Result<FillInMiddle> fill_in_middle(const tokenizer::Tokenizer& tokenizer,
                                    const std::vector<TokenId>& before,
                                    const std::vector<TokenId>& after) {
  const std::optional<Markers> markers = find_markers(tokenizer);
  if (!markers) {
    return Error{ErrorCode::kInvalidArgument,
                 "'suffix': this model's vocabulary has no control tokens to fill in a middle; "
                 "send the text before it alone",
                 "suffix"};
  }
  FillInMiddle made;
  std::vector<TokenId>& prompt = made.prompt;
  const auto add_before = [&] {
    prompt.push_back(markers->before);
    prompt.insert(prompt.end(), before.begin(), before.end());
  };
  if (!markers->suffix_first) add_before();
  prompt.push_back(markers->after);
  prompt.insert(prompt.end(), after.begin(), after.end());
  if (markers->suffix_first) add_before();
  if (markers->middle) prompt.push_back(*markers->middle);
  made.stops = {markers->before, markers->after};
  if (markers->middle) made.stops.push_back(*markers->middle);
  for (const std::string_view other : kOtherStops) {
    if (const auto stop = control_token(tokenizer, other)) made.stops.push_back(*stop);
  }
  return made;
}

}  // namespace pelton::server

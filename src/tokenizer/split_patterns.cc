#include "tokenizer/split_patterns.h"

#include <algorithm>
#include <iterator>

#include "tokenizer/o200k_splitter.h"

namespace pelton::tokenizer {
namespace {

const std::string_view kGpt4o[] = {kO200kPattern};
constexpr std::string_view kGpt2[] = {
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re"};
// Each digit by itself, then GPT-2's: StarCoder's, which Granite's and SmolLM's vocabularies share.
constexpr std::string_view kStarCoder[] = {R"re(\p{N})re", kGpt2[0]};
constexpr std::string_view kLlama3[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)re"
    R"re(\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr std::string_view kQwen2[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)re"
    R"re(\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr std::string_view kQwen35[] = {
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
constexpr std::string_view kDeepSeekV3[] = {
    R"re(\p{N}{1,3})re", R"re([一-龥぀-ゟ゠-ヿ]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)re"
    R"re( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};
// The first generation's; \p{L&} is every cased letter.
constexpr std::string_view kDeepSeekLlm[] = {R"re([\r\n])re",
                                             R"re(\s?\p{L&}+)re",
                                             R"re(\s?[!-/:-~！-／：-～‘-‟　-。]+)re",
                                             R"re(\s+$)re",
                                             R"re([一-龥ࠀ-一가-퟿]+)re",
                                             R"re(\p{N}+)re"};
constexpr std::string_view kTekken[] = {
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)re"
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"};

const NamedSplit kSplits[] = {
    {"gpt-4o", kGpt4o, true},     {"gpt-2", kGpt2},
    {"llama-bpe", kLlama3, true}, {"llama3", kLlama3, true},
    {"llama-v3", kLlama3, true},  {"qwen2", kQwen2},
    {"qwen35", kQwen35},          {"deepseek-r1-qwen", kQwen2},
    {"deepseek-v3", kDeepSeekV3}, {"deepseek-llm", kDeepSeekLlm},
    {"tekken", kTekken, true},    {"starcoder", kStarCoder},
    {"refact", kStarCoder},       {"smollm", kStarCoder},
};

}  // namespace

const NamedSplit* find_split(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kSplits), std::end(kSplits),
                                         [&](const NamedSplit& s) { return s.name == name; });
  return found == std::end(kSplits) ? nullptr : found;
}

std::string split_names() {
  std::string names;
  for (const NamedSplit& split : kSplits) {
    if (!names.empty()) names += ", ";
    names += split.name;
  }
  return names;
}

}  // namespace pelton::tokenizer

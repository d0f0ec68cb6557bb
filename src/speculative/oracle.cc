#include "speculative/oracle.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"

namespace pelton::speculative {
namespace {

std::optional<std::vector<TokenId>> token_ids(const Json* array) {
  if (array == nullptr || !array->is_array()) return std::nullopt;
  std::vector<TokenId> tokens;
  for (const Json& one : array->as_array()) {
    const bool is_id = one.is_integer() && one.as_integer() >= 0 && one.as_integer() <= INT32_MAX;
    if (!is_id) return std::nullopt;
    tokens.push_back(static_cast<TokenId>(one.as_integer()));
  }
  return tokens;
}

}  // namespace

Oracle::Oracle(const Options& options, Answers answers)
    : options_(options),
      answers_(std::move(answers)),
      slots_(static_cast<size_t>(options.slot_count)) {}

Result<Oracle::Answers> Oracle::read_answers(const std::string& file) {
  TRY_ASSIGN(const std::string text, base::read_file(file));
  Answers answers;
  int line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    ++line;
    const auto refused = [&](std::string_view why) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}, line {}: {}; a line is "
                               "{{\"prompt\":[ids],\"seed\":N,\"output\":[ids]}}",
                               file, line, why),
                   "answers"};
    };
    const Result<Json> json = Json::parse(std::string_view(text).substr(begin, end - begin));
    if (!json.ok()) return refused(json.error().message);
    std::optional<std::vector<TokenId>> prompt = token_ids(json->find("prompt"));
    std::optional<std::vector<TokenId>> output = token_ids(json->find("output"));
    if (!prompt || !output) return refused("no prompt or no output");
    const auto seed = static_cast<uint64_t>(json->integer("seed").value_or(0));
    answers[{*std::move(prompt), seed}] = *std::move(output);
    begin = end + 1;
  }
  return answers;
}

void Oracle::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  slot = {.prompt_count = static_cast<size_t>(sequence.prompt_count),
          .seed = sequence.sampling == nullptr ? 0 : sequence.sampling->seed};
  const std::span<const TokenId> prompt = sequence.tokens.first(slot.prompt_count);
  const auto known = answers_.find({{prompt.begin(), prompt.end()}, slot.seed});
  if (known != answers_.end()) slot.answer = &known->second;
}

Result<void> Oracle::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) {
    const Slot& slot = slots_[static_cast<size_t>(request.slot)];
    if (slot.answer == nullptr) continue;
    for (int i = 0; i < request.tokens_max; ++i) {
      const size_t position = request.tokens.size() + static_cast<size_t>(i);
      const size_t at = position - slot.prompt_count;
      if (at >= slot.answer->size()) break;
      const TokenId right = (*slot.answer)[at];
      const bool is_right = base::random_unit(slot.seed, position) < options_.acceptance;
      request.guesses.push_back(is_right ? right : (right + 1) % options_.vocab_size);
    }
  }
  return {};
}

}  // namespace pelton::speculative

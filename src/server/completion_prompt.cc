#include "server/completion_prompt.h"

#include <algorithm>
#include <span>
#include <variant>

#include <fmt/format.h>

namespace pelton::server {

Result<std::vector<TokenId>> completion_prompt(const api::Prompt& prompt, const ServedModel& model,
                                               std::string_view field, bool adds_special) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (std::optional<Error> error = model.no_text(field, TextUse::kPrompt)) return *error;
    return adds_special ? model.tokenizer.encode_prompt(*text) : model.tokenizer.encode(*text);
  }
  const auto& ids = std::get<std::vector<TokenId>>(prompt);
  if (model.control_tokens_in_prompts) return ids;
  // What a text would begin with, ids may, too.
  const std::span<const TokenId> begin = model.tokenizer.prompt_begin();
  const bool has_begin =
      ids.size() >= begin.size() && std::equal(begin.begin(), begin.end(), ids.begin());
  for (const TokenId id : std::span(ids).subspan(has_begin ? begin.size() : 0)) {
    if (!model.tokenizer.is_special(id)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' holds the control token {}; this server does not take those "
                             "(serve with --allow-control-tokens)",
                             field, id),
                 std::string(field)};
  }
  return ids;
}

}  // namespace pelton::server

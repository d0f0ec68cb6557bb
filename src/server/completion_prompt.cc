#include "server/completion_prompt.h"

#include <variant>

#include <fmt/format.h>

namespace pelton::server {

Result<std::vector<TokenId>> completion_prompt(const api::Prompt& prompt, const ServedModel& model,
                                               std::string_view field) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (std::optional<Error> error = model.no_text(field)) return *error;
    return model.tokenizer.encode(*text);
  }
  const auto& ids = std::get<std::vector<TokenId>>(prompt);
  if (model.control_tokens_in_prompts) return ids;
  for (const TokenId id : ids) {
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

#include "gateway/said_tokens.h"

#include <utility>

#include <fmt/format.h>

#include "cluster/frame.h"

namespace pelton::gateway {

Result<void> SaidTokens::add(cluster::TokenList list) {
  if (finished() || list.first != count()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tokens from {} on, where {} are next", list.first, count())};
  }
  if (list.with_logprobs) {
    for (const TokenId id : std::exchange(ids_, {})) scored_.push_back({.token = id});
  }
  for (cluster::WireToken& token : list.tokens) {
    if (list.with_logprobs || !scored_.empty()) {
      scored_.push_back(std::move(token));
    } else {
      ids_.push_back(token.token);
    }
  }
  return {};
}

Result<void> SaidTokens::finish(std::string choice_end) {
  if (finished() || choice_end.empty()) {
    return Error{ErrorCode::kInvalidArgument, "a choice that ends twice, or without a word"};
  }
  end_ = std::move(choice_end);
  return {};
}

void SaidTokens::append_frames(uint16_t choice, std::string& out) const {
  cluster::TokenList list{.first = 0, .with_logprobs = !scored_.empty(), .tokens = scored_};
  for (const TokenId id : ids_) list.tokens.push_back({.token = id});
  if (!list.tokens.empty()) {
    cluster::append_frame(
        out, {.type = cluster::FrameType::kTokens, .choice = choice, .payload = encode(list)});
  }
  if (!finished()) return;
  cluster::append_frame(out,
                        {.type = cluster::FrameType::kFinished, .choice = choice, .payload = end_});
}

}  // namespace pelton::gateway

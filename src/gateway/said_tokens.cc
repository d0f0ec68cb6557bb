#include "gateway/said_tokens.h"

#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "cluster/envelope.h"
#include "cluster/frame.h"

namespace pelton::gateway {
namespace {

uint64_t digested(uint64_t before, TokenId token) {
  return base::random_bits(before, static_cast<uint64_t>(token));
}

}  // namespace

Result<void> SaidTokens::add(cluster::TokenList list) {
  if (finished() || list.first != count()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tokens from {} on, where {} are next", list.first, count())};
  }
  if (list.with_logprobs) {
    for (const TokenId id : std::exchange(ids_, {})) scored_.push_back({.token = id});
  }
  for (cluster::WireToken& token : list.tokens) {
    digest_ = digested(digest_, token.token);
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

void SaidTokens::cut(size_t tokens, bool finished) {
  if (ids_.size() > tokens) ids_.resize(tokens);
  if (scored_.size() > tokens) scored_.resize(tokens);
  if (!finished) end_.clear();
  digest_ = 0;
  for (const TokenId id : ids_) digest_ = digested(digest_, id);
  for (const cluster::WireToken& token : scored_) digest_ = digested(digest_, token.token);
}

void SaidTokens::note_found(std::string found) {
  if (count() == 0 && !finished()) found_ = std::move(found);
}

std::optional<int> SaidTokens::cached_tokens() const {
  if (found_.empty()) return std::nullopt;
  const Result<cluster::PromptFound> found = cluster::decode_prompt_found(found_);
  return found.ok() ? std::optional(found->cached_tokens) : std::nullopt;
}

int SaidTokens::fetched_tokens() const {
  const Result<cluster::PromptFound> found = cluster::decode_prompt_found(found_);
  return found.ok() ? found->peer_tokens : 0;
}

void SaidTokens::append_frames(uint16_t choice, std::string& out) const {
  cluster::TokenList list{.first = 0, .with_logprobs = !scored_.empty(), .tokens = scored_};
  for (const TokenId id : ids_) list.tokens.push_back({.token = id});
  // A choice that has said nothing begins anew.
  if (!found_.empty() && (count() > 0 || finished())) {
    cluster::append_frame(out, {.type = cluster::FrameType::kFound,
                                .flags = cluster::Frame::kOptional,
                                .choice = choice,
                                .payload = found_});
  }
  if (!list.tokens.empty()) {
    cluster::append_frame(
        out, {.type = cluster::FrameType::kTokens, .choice = choice, .payload = encode(list)});
  }
  if (!finished()) return;
  cluster::append_frame(out,
                        {.type = cluster::FrameType::kFinished, .choice = choice, .payload = end_});
}

}  // namespace pelton::gateway

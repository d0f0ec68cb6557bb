// Log-probabilities of sampled tokens, held until the text of each has begun to come out: a stop
// string that is being awaited may still take it back. Owned by one answer.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "api/logprobs.h"

namespace pelton::server {

class HeldLogprobs {
 public:
  // `text_begin`: of the token's own text in the whole.
  void hold(size_t text_begin, api::TokenLogprobs logprobs) {
    held_.push_back({text_begin, std::move(logprobs)});
  }
  // Of tokens whose text begins before `text_end`.
  void release(size_t text_end, std::vector<api::TokenLogprobs>& out) {
    if (held_.empty()) return;
    auto held = held_.begin();
    while (held != held_.end() && held->text_begin < text_end) {
      out.push_back(std::move(held->logprobs));
      ++held;
    }
    held_.erase(held_.begin(), held);
  }

 private:
  struct Held {
    size_t text_begin;
    api::TokenLogprobs logprobs;
  };
  std::vector<Held> held_;
};

}  // namespace pelton::server

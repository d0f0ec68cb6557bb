// Which side of a roll-out each conversation (or user) was given, of those that came lately: it
// stays there while shares change. Bounded: the oldest makes room, and is then drawn anew. Whoever
// owns it guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "gateway/sequential_evidence.h"

namespace pelton::gateway {

class ConversationPins {
 public:
  explicit ConversationPins(size_t pins_max = 65'536) : pins_max_(pins_max) {}

  // None: it is not known.
  std::optional<ArmSide> find(uint64_t conversation) const {
    const auto found = pins_.find(conversation);
    return found == pins_.end() ? std::nullopt : std::optional(found->second);
  }
  // One that is known stays as it is. True: it is new.
  bool note(uint64_t conversation, ArmSide side) {
    if (!pins_.try_emplace(conversation, side).second) return false;
    order_.push_back(conversation);
    if (order_.size() > pins_max_) {
      pins_.erase(order_.front());
      order_.pop_front();
    }
    return true;
  }
  size_t size() const { return pins_.size(); }

 private:
  size_t pins_max_;
  std::unordered_map<uint64_t, ArmSide> pins_;
  std::deque<uint64_t> order_;  // as they came
};

}  // namespace pelton::gateway

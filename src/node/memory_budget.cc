#include "node/memory_budget.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::node {
namespace {

std::string human(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  return fmt::format("{:.1f} MiB", value / (1 << 20));
}

}  // namespace

MemoryBudget::Share::Share(Share&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), use_(other.use_) {}

MemoryBudget::Share::~Share() {
  if (budget_ == nullptr) return;
  const std::lock_guard lock(budget_->mutex_);
  budget_->uses_.erase(use_);
}

int64_t MemoryBudget::left_locked() const {
  int64_t left = bytes_;
  for (const Use& use : uses_) left -= use.bytes;
  return std::max<int64_t>(left, 0);
}

int64_t MemoryBudget::left() const {
  const std::lock_guard lock(mutex_);
  return left_locked();
}

std::vector<MemoryBudget::Use> MemoryBudget::uses() const {
  const std::lock_guard lock(mutex_);
  return {uses_.begin(), uses_.end()};
}

// "3.00 GiB of 10.00 GiB are left ('a' has 7.00 GiB)".
std::string MemoryBudget::left_text() const {
  std::vector<std::string> others;
  for (const Use& use : uses_) {
    others.push_back(fmt::format("'{}' has {}", use.model, human(use.bytes)));
  }
  return fmt::format("{} of {} are left ({})", human(left_locked()), human(bytes_),
                     fmt::join(others, ", "));
}

Error MemoryBudget::beside_others(Error error) const {
  const std::lock_guard lock(mutex_);
  if (error.code == ErrorCode::kDoesNotFit && !uses_.empty()) {
    error.message += "; of this machine's memory " + left_text();
  }
  return error;
}

Result<MemoryBudget::Share> MemoryBudget::take(const std::string& model, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t left = left_locked();
  if (!uses_.empty() && bytes > left) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("'{}' asks for {} of memory, and {}; unload a model, or give this one "
                             "less (--kv-cache-memory, --max-model-len)",
                             model, human(bytes), left_text()),
                 "kv-cache-memory"};
  }
  return Share(*this, uses_.insert(uses_.end(), {model, bytes}));
}

}  // namespace pelton::node

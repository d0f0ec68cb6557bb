// How much of this machine's memory the models of a process may take together, and who has what of
// it. Pure bookkeeping: numbers in, numbers out; what a model takes is said by cost_model's
// footprint before anything is allocated. Owned by the program's entry; any thread.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::node {

class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t bytes) : bytes_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  struct Use {
    std::string model;
    int64_t bytes = 0;
  };

  // What one model has of it, until this goes. The budget outlives it.
  class Share {
   public:
    Share(Share&& other) noexcept;
    Share& operator=(Share&&) = delete;
    ~Share();

   private:
    friend class MemoryBudget;
    Share(MemoryBudget& budget, std::list<Use>::iterator use) : budget_(&budget), use_(use) {}
    MemoryBudget* budget_;  // null: moved from
    std::list<Use>::iterator use_;
  };

  // All of it or nothing: kDoesNotFit names what is asked, what is left, and who has the rest. The
  // first model may be larger than the budget (weights in files larger than memory are read again
  // and again); beside it there is room for no other.
  Result<Share> take(const std::string& model, int64_t bytes);

  // An error of a model that does not fit into what is left, with what is left and why.
  Error beside_others(Error error) const;

  int64_t bytes() const { return bytes_; }
  int64_t left() const;  // never negative
  std::vector<Use> uses() const;

 private:
  int64_t left_locked() const;
  std::string left_text() const;

  const int64_t bytes_;
  mutable std::mutex mutex_;
  std::list<Use> uses_;  // guarded by mutex_
};

}  // namespace pelton::node

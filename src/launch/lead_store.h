// Where several autoscalers agree on who decides (lead.h), and where whoever does keeps what it
// remembers for the next one. Owned by a Lead: enter(), read() and give_up() by its owner, renew()
// by one thread of it, write() by another.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::launch {

class LeadStore {
 public:
  virtual ~LeadStore() = default;

  struct Term {
    // Rises from one who leads to the next: fences its orders.
    uint64_t epoch = 0;
    std::chrono::nanoseconds left{0};  // from when it was asked for
  };
  // The lead, if nobody has it. None: somebody else does.
  virtual Result<std::optional<Term>> enter(const std::string& name) = 0;
  // What is left of it from when this was called. kNotFound: it is another one's.
  virtual Result<std::chrono::nanoseconds> renew() = 0;
  // So that the next one need not wait.
  virtual Result<void> give_up() = 0;
  // Between two attempts to enter.
  virtual std::chrono::milliseconds look_again() const = 0;

  struct Entry {
    std::string pool;
    std::string text;  // JSON
  };
  virtual Result<std::vector<Entry>> read() = 0;
  // False: another one leads, and nothing was written.
  virtual Result<bool> write(const Entry& entry) = 0;
};

}  // namespace pelton::launch

// Progress of work that has several parts, one bar after the other: a part's bar is cleared when
// the next part begins. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cli/progress.h"

namespace pelton::cli {

class PhasedProgress {
 public:
  explicit PhasedProgress(const base::Clock& clock) : clock_(clock) {}

  // Totals of a million and more are bytes.
  void update(std::string_view what, int64_t done, int64_t total) {
    if (!bar_ || what != what_) {
      what_ = what;
      bar_.reset();
      bar_.emplace(what_, total >= 1'000'000 ? Progress::Unit::kBytes : Progress::Unit::kCount,
                   clock_);
    }
    bar_->update(done, total);
  }
  void clear() { bar_.reset(); }

 private:
  const base::Clock& clock_;
  std::string what_;
  std::optional<Progress> bar_;
};

}  // namespace pelton::cli

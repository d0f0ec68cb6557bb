// Progress of work that has several parts, one after the other in the same bar. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "cli/progress.h"

namespace pelton::cli {

class PhasedProgress {
 public:
  explicit PhasedProgress(const base::Clock& clock)
      : progress_(std::in_place, "", Progress::Unit::kCount, clock) {}
  PhasedProgress(const base::Clock& clock, Progress::Lines lines)
      : progress_(std::in_place, "", Progress::Unit::kCount, clock, std::move(lines)) {}

  // Totals of a million and more are bytes.
  void update(std::string_view what, int64_t done, int64_t total) {
    if (!progress_) return;
    if (what != what_) {
      what_ = what;
      const bool bytes = total >= 1'000'000;
      progress_->begin(what_, bytes ? Progress::Unit::kBytes : Progress::Unit::kCount);
    }
    progress_->update(done, total);
  }
  // The end: takes the bar away.
  void clear() { progress_.reset(); }

 private:
  std::string what_;
  std::optional<Progress> progress_;
};

}  // namespace pelton::cli

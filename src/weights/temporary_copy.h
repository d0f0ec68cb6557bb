// A folder for weights that nobody asked to keep: there while a model is loaded from it, gone when
// this goes. What a process that was killed has left is deleted by the next. One thread.
#pragma once

#include <string>

#include "base/result.h"

namespace pelton::weights {

class TemporaryCopy {
 public:
  // Below the system's folder for such things. Errors: kIo.
  static Result<TemporaryCopy> make();
  TemporaryCopy(TemporaryCopy&& other) noexcept;
  TemporaryCopy& operator=(TemporaryCopy&& other) noexcept;
  ~TemporaryCopy();

  const std::string& folder() const { return folder_; }

 private:
  TemporaryCopy(std::string folder, int lock) : folder_(std::move(folder)), lock_(lock) {}

  std::string folder_;
  int lock_;  // held while it is in use
};

}  // namespace pelton::weights

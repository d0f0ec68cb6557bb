// A folder for the time of one run, removed with all that is in it when it goes. Value, moved.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace pelton::apps {

class WorkFolder {
 public:
  // "pelton-quickstart": below $TMPDIR, with something drawn behind it. Errors: kIo.
  static Result<WorkFolder> make(std::string_view prefix);
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder();

  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace pelton::apps

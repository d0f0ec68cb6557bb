// The folders that --lora-folder names: which adapters lie in them, by their own folders' names.
// Links are followed before anything is decided, those of folders and those of an adapter's files:
// what they lead to must lie in one of these folders as well. Immutable; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::server {

class AdapterFolders {
 public:
  explicit AdapterFolders(std::vector<std::string> folders) : folders_(std::move(folders)) {}

  bool empty() const { return folders_.empty(); }

  // FOLDER/NAME, of the first folder that holds such an adapter; none: there is none.
  std::optional<std::string> find(std::string_view name) const;
  // Of all that could be one.
  std::vector<std::string> names() const;

  // Where `asked` leads. Errors, of the field "lora_path": kNotFound; kInvalidArgument (it is
  // elsewhere, and nobody learns whether it is there).
  Result<std::string> resolve(const std::string& asked) const;
  // Whether a file lies here, wherever links lead; false: it is not there, too.
  bool holds_file(const std::string& path) const;
  // That an adapter's folder and its files lie here, as they are now. Errors: kInvalidArgument,
  // "lora_path", naming what leads out.
  Result<void> check(const std::string& adapter) const;

 private:
  bool holds(const std::filesystem::path& resolved) const;

  const std::vector<std::string> folders_;
};

}  // namespace pelton::server

// The files of data/, compiled into the binary: what hardware is and what well-known models look
// like. Immutable; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::cost_model {

struct DataFile {
  std::string_view name;  // "hardware/h100.json"
  std::string_view text;
};

std::span<const DataFile> data_files();  // generated

std::optional<std::string_view> find_data(std::string_view name);

// "hardware/" -> "a100-40", "a100-80", ...
std::vector<std::string> data_names(std::string_view folder);

}  // namespace pelton::cost_model

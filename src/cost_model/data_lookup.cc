#include "cost_model/built_in_data.h"

namespace pelton::cost_model {

std::optional<std::string_view> find_data(std::string_view name) {
  for (const DataFile& file : data_files()) {
    if (file.name == name) return file.text;
  }
  return std::nullopt;
}

std::vector<std::string> data_names(std::string_view folder) {
  constexpr std::string_view kEnding = ".json";
  std::vector<std::string> names;
  for (const DataFile& file : data_files()) {
    if (!file.name.starts_with(folder)) continue;
    std::string_view name = file.name.substr(folder.size());
    name.remove_suffix(kEnding.size());
    names.emplace_back(name);
  }
  return names;
}

}  // namespace pelton::cost_model

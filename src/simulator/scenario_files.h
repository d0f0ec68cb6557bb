// The files of scenarios/, compiled in. For scenario.cc.
#pragma once

#include <span>
#include <string_view>

namespace pelton::simulator {

struct ScenarioFile {
  std::string_view name;  // without ".toml"
  std::string_view text;
};
std::span<const ScenarioFile> scenario_files();

}  // namespace pelton::simulator

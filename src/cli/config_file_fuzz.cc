// Any bytes as a configuration file: read or refused with a line, and then given to a verb.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "cli/command_line.h"
#include "cli/config_file.h"

namespace {

using pelton::cli::ConfigEntry;

// What was read, written again, is read again as the same.
void check_again(const pelton::cli::ConfigFile& config) {
  std::string text;
  for (const ConfigEntry& entry : config.entries) {
    if (entry.type != ConfigEntry::Type::kText) continue;
    text +=
        pelton::cli::toml_quoted(entry.name) + " = " + pelton::cli::toml_quoted(entry.text) + "\n";
  }
  const auto again = pelton::cli::parse_config(text, "again.toml");
  CHECK(again.ok(), again.ok() ? "" : again.error().message);
  size_t at = 0;
  for (const ConfigEntry& entry : config.entries) {
    if (entry.type != ConfigEntry::Type::kText) continue;
    CHECK(again->entries[at].name == entry.name && again->entries[at].text == entry.text);
    ++at;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = pelton::cli::parse_config(text, "fuzz.toml");
  if (!config.ok()) {
    CHECK(config.error().message.starts_with("fuzz.toml:"), config.error().message);
    return 0;
  }
  check_again(*config);
  return 0;
}

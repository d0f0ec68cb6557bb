// What is another one between two configurations, object by object: for whoever is about to put one
// in place of the other, and for the audit log. Both as config_text() writes them, with all that
// their files leave out: a key that says what holds anyway is no change. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/toml_tree.h"

namespace pelton::gateway {

struct ConfigChange {
  enum class How { kAdded, kRemoved, kChanged };

  How how = How::kChanged;
  std::string kind;   // "pool", "gateway"
  std::string name;   // of one of several; empty: there is one of its kind, or their order changed
  std::string value;  // of what changed, "scale.max = 2 -> 4"; of others empty

  friend bool operator==(const ConfigChange&, const ConfigChange&) = default;
};
// In the order of the new one, what is gone behind it. Errors: kBadConfig, one is no TOML.
Result<std::vector<ConfigChange>> config_changes(std::string_view before, std::string_view after);

std::string_view how_name(ConfigChange::How how);  // "added"
// "+ pool b", "- worker http://10.0.0.1:9000", "~ pool a: scale.max = 2 -> 4".
std::string change_text(const ConfigChange& change);

// A text that config_text() has written, each of its objects apart; together they are the text.
std::vector<std::string_view> split_config(std::string_view text);

// Of what there may be several: pool, route, tenant, worker, region.
bool is_config_list(std::string_view kind);
// What one of these is called: a pool's name, a worker's URL, a route's "MODEL" or "MODEL/TENANT";
// empty: it says none.
std::string config_name(std::string_view kind, const cli::TomlNode& object);

}  // namespace pelton::gateway

// The text of a chain file as steps, each key of a known kind; what they name is looked at by
// chain_check.h. Internal to this room.
#pragma once

#include <string>

#include "base/result.h"
#include "chain/chain.h"
#include "cli/toml_tree.h"

namespace pelton::chain {

// Errors: kBadConfig with the line.
Result<Chain> read_chain_tables(const cli::TomlNode& root, const std::string& file);

}  // namespace pelton::chain

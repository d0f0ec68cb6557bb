// The disk tier of the prefix cache: its flags, and what they ask for.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "node/loaded_model.h"

namespace pelton::apps {

std::vector<cli::Flag> kv_disk_flags();

// --kv-disk-key-file, of whichever verb; empty without it. Errors: kBadConfig.
Result<std::string> kv_disk_secret(const cli::Arguments& arguments);
cli::Flag kv_disk_key_flag();

// Behind the flags of batches and fleets: the seed of names is the key's where no fleet has one.
// Errors: kBadConfig, kInvalidArgument.
Result<void> read_kv_disk_flags(const cli::Arguments& arguments,
                                node::LoadedModel::Options& options);

}  // namespace pelton::apps

// Which files a rank computes with, for all ranks to compare (docs/decisions/0192). Ranks that
// compute with other bytes are found out by nothing else: what a step gives is gathered from all,
// and so the same on all. Pure but for the files; the load's thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"

namespace pelton::executor {

// By what it is, what it says: "weights, file 1 of 2" is digest "3f20...".
using RankFiles = std::map<std::string, std::string>;

enum class SameBy {
  kPlace,  // device and inode, of ranks on one host: the same pages, which nobody has to read
  kBytes,  // every byte is read
};

// Configuration and weights of `model`, as `checkpoint` has mapped them. Errors: of config.json.
Result<RankFiles> rank_files(const checkpoint::Checkpoint& checkpoint, const std::string& model,
                             SameBy by, base::ThreadPool& pool);

Json to_json(const RankFiles& files);
// Error: kBadConfig.
Result<RankFiles> rank_files_of(std::string_view text);

}  // namespace pelton::executor

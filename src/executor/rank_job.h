// What the ranks of a group must agree on before they compute a model together: which model, how it
// is computed, how large its caches are. The leader's job for its followers, and what each compares
// with its own; a difference is refused by name, there is no common denominator. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/load_choice.h"
#include "cost_model/footprint.h"
#include "layers/expert_placement.h"

namespace pelton::executor {

struct RankJob {
  static constexpr int64_t kProtocol = 5;

  int64_t protocol = kProtocol;
  std::string model;    // where its files lie (what lies in them: rank_files.h)
  std::string kernels;  // as asked for
  std::string kernels_name;
  int threads = 0;  // of each rank; 0: as many as it has processors
  int batch_tokens_max = 0;
  int logit_rows_max = 0;
  cost_model::KvAllocated kv;    // of all ranks together: numbers of blocks are each one's
  cost_model::KvAllocated swap;  // likewise
  std::vector<int> weights;      // layers::RankPart::make
  layers::ExpertTable experts;   // likewise
  // How the weights of each come into memory, and are looked at (RankOptions).
  checkpoint::LoadMode load_mode = checkpoint::LoadMode::kMap;  // not kAuto
  bool reads_ahead = true;
  int64_t scrub_period_ns = 0;
  // What else must agree where somebody else started the ranks, by name: flags, the version.
  std::map<std::string, std::string> facts;

  Json to_json() const;
  // Errors: kBadConfig naming the member; of another protocol, both.
  static Result<RankJob> from_json(const Json& json);
};

// Error: kBadConfig, naming the first difference: "--block-size: 16 at the leader, 32 here".
Result<void> check_facts(const std::map<std::string, std::string>& leader,
                         const std::map<std::string, std::string>& own);

}  // namespace pelton::executor

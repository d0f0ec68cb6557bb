#include "executor/rank_job.h"

#include <utility>

#include <fmt/format.h>

#include "tensor/kv_block.h"

namespace pelton::executor {
namespace {

Json kv_json(const cost_model::KvAllocated& kv) {
  Json::Array blocks;
  for (const cost_model::KvAllocated::Group& group : kv.groups)
    blocks.emplace_back(group.block_count);
  Json json;
  json.set("dtype", tensor::kv_type_name(kv.dtype))
      .set("block_tokens", kv.block_tokens)
      .set("blocks", std::move(blocks));
  return json;
}

Error bad(std::string_view member) {
  return Error{ErrorCode::kBadConfig, fmt::format("a rank's job lacks '{}'", member)};
}

Result<cost_model::KvAllocated> kv_of(const Json& json, std::string_view member) {
  const Json* const kv = json.find(member);
  if (kv == nullptr) return bad(member);
  const auto dtype = kv->string("dtype");
  const auto block_tokens = kv->integer("block_tokens");
  const Json* const blocks = kv->find("blocks");
  if (!dtype || !block_tokens || blocks == nullptr || !blocks->is_array() ||
      blocks->as_array().size() > kv::kGroupsMax) {
    return bad(member);
  }
  cost_model::KvAllocated made{.block_tokens = static_cast<int>(*block_tokens)};
  if (*dtype == tensor::kv_type_name(tensor::DType::kF32)) {
    made.dtype = tensor::DType::kF32;
  } else {
    TRY_ASSIGN(const auto parsed, tensor::parse_kv_type(*dtype));
    if (!parsed) return bad(member);
    made.dtype = *parsed;
  }
  for (const Json& count : blocks->as_array()) {
    if (!count.is_integer() || count.as_integer() < 0 || count.as_integer() > INT32_MAX) {
      return bad(member);
    }
    cost_model::KvAllocated::Group group;
    group.block_count = static_cast<int>(count.as_integer());
    made.groups.push_back(std::move(group));
  }
  return made;
}

Json::Array array_of(const std::vector<int>& numbers) {
  Json::Array array;
  for (const int number : numbers) array.emplace_back(number);
  return array;
}

// Small numbers from 0 on.
Result<std::vector<int>> numbers_of(const Json* json, std::string_view member) {
  if (json == nullptr || !json->is_array()) return bad(member);
  std::vector<int> numbers;
  for (const Json& number : json->as_array()) {
    if (!number.is_integer() || number.as_integer() < 0 || number.as_integer() > INT16_MAX) {
      return bad(member);
    }
    numbers.push_back(static_cast<int>(number.as_integer()));
  }
  return numbers;
}

Json::Array array_of(const layers::ExpertTable& table) {
  Json::Array layers;
  for (const std::vector<std::vector<int>>& experts : table) {
    Json::Array layer;
    for (const std::vector<int>& ranks : experts) layer.emplace_back(array_of(ranks));
    layers.emplace_back(std::move(layer));
  }
  return layers;
}

Result<layers::ExpertTable> experts_of(const Json* json) {
  if (json == nullptr || !json->is_array()) return bad("experts");
  layers::ExpertTable table;
  for (const Json& layer : json->as_array()) {
    if (!layer.is_array()) return bad("experts");
    table.emplace_back();
    for (const Json& ranks : layer.as_array()) {
      TRY_ASSIGN(std::vector<int> numbers, numbers_of(&ranks, "experts"));
      table.back().push_back(std::move(numbers));
    }
  }
  return table;
}

// How weights come into memory, and are looked at.
Result<void> read_loading(const Json& json, RankJob& job) {
  const auto mode = checkpoint::parse_load_mode(json.string("load_mode").value_or(""));
  if (!mode.ok() || *mode == checkpoint::LoadMode::kAuto) return bad("load_mode");
  const auto reads_ahead = json.boolean("reads_ahead");
  if (!reads_ahead) return bad("reads_ahead");
  const auto period = json.integer("scrub_period_ns");
  if (!period || *period < 0) return bad("scrub_period_ns");
  job.load_mode = *mode;
  job.reads_ahead = *reads_ahead;
  job.scrub_period_ns = *period;
  return {};
}

}  // namespace

Json RankJob::to_json() const {
  Json agreed((Json::Object()));
  for (const auto& [name, value] : facts) agreed.set(name, value);
  Json json;
  json.set("facts", std::move(agreed));
  json.set("protocol", protocol)
      .set("model", model)
      .set("kernels", kernels)
      .set("kernels_name", kernels_name)
      .set("threads", threads)
      .set("batch_tokens_max", batch_tokens_max)
      .set("logit_rows_max", logit_rows_max)
      .set("kv", kv_json(kv))
      .set("swap", kv_json(swap))
      .set("weights", array_of(weights))
      .set("experts", array_of(experts))
      .set("load_mode", checkpoint::load_mode_name(load_mode))
      .set("reads_ahead", reads_ahead)
      .set("scrub_period_ns", scrub_period_ns);
  return json;
}

Result<RankJob> RankJob::from_json(const Json& json) {
  RankJob job;
  const auto protocol = json.integer("protocol");
  if (protocol != kProtocol) {
    return Error{ErrorCode::kBadConfig, fmt::format("protocol: {} at the leader, {} here",
                                                    protocol.value_or(0), kProtocol)};
  }
  const auto text = [&](const char* member, std::string& to) -> Result<void> {
    const auto value = json.string(member);
    if (!value) return bad(member);
    to = *value;
    return {};
  };
  const auto count = [&](const char* member, int& to) -> Result<void> {
    const auto value = json.integer(member);
    if (!value || *value < 0 || *value > INT32_MAX) return bad(member);
    to = static_cast<int>(*value);
    return {};
  };
  TRY(text("model", job.model));
  TRY(text("kernels", job.kernels));
  TRY(text("kernels_name", job.kernels_name));
  TRY(count("threads", job.threads));
  TRY(count("batch_tokens_max", job.batch_tokens_max));
  TRY(count("logit_rows_max", job.logit_rows_max));
  TRY_ASSIGN(job.kv, kv_of(json, "kv"));
  TRY_ASSIGN(job.swap, kv_of(json, "swap"));
  const Json* const facts = json.find("facts");
  if (facts == nullptr || !facts->is_object()) return bad("facts");
  for (const auto& [name, value] : facts->as_object()) {
    if (!value.is_string()) return bad("facts");
    job.facts.emplace(name, value.as_string());
  }
  TRY_ASSIGN(job.weights, numbers_of(json.find("weights"), "weights"));
  TRY_ASSIGN(job.experts, experts_of(json.find("experts")));
  TRY(read_loading(json, job));
  return job;
}

Result<void> check_facts(const std::map<std::string, std::string>& leader,
                         const std::map<std::string, std::string>& own) {
  const auto value_in = [](const std::map<std::string, std::string>& facts,
                           const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string("nothing") : found->second;
  };
  std::map<std::string, std::string> all = leader;
  all.insert(own.begin(), own.end());
  for (const auto& [name, value] : all) {
    const std::string theirs = value_in(leader, name);
    const std::string ours = value_in(own, name);
    if (theirs == ours) continue;
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}: {} at the leader, {} here", name, theirs, ours)};
  }
  return {};
}

}  // namespace pelton::executor

#include "sampling/device_rows.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "sampling/draw_numbers.h"

namespace pelton::sampling {

void DeviceRows::clear(int vocab) {
  vocab_ = vocab;
  rows_.clear();
  edits_.clear();
  masks_.clear();
}

// A bias that comes twice is added twice, which a device's threads cannot do side by side.
bool DeviceRows::are_hosts(const request::SamplingParams& params) {
  if (params.logprobs > cuda::kReportedMax) return true;
  if (params.has_penalties() && params.penalty_last_n >= 0) return true;
  if (!params.logprob_tokens.empty()) return true;
  const bool is_plain = !params.has_distribution_cuts() && params.dry.multiplier <= 0.0f &&
                        params.bad_words.empty() && params.allowed_tokens.empty();
  if (!is_plain) return true;
  std::vector<TokenId> biased;
  for (const auto& [token, bias] : params.logit_bias) biased.push_back(token);
  std::sort(biased.begin(), biased.end());
  return std::adjacent_find(biased.begin(), biased.end()) != biased.end();
}

bool DeviceRows::has_room(const DrawInput& input) const {
  const size_t more =
      (input.history != nullptr ? penalties_of(input.history->counts().size()) : 0) +
      input.params.logit_bias.size() + input.banned.size();
  return edits_.size() + more <= kEditsMax && !are_hosts(input.params);
}

DeviceRows::Edits DeviceRows::add_penalties(const DrawInput& input, int32_t pending_row) {
  Edits out{.first = static_cast<int32_t>(edits_.size())};
  if (input.history == nullptr) return out;
  for (const auto& [token, count] : input.history->counts()) {
    cuda::LogitEdit edit{.token = token};
    edit.in_output = count.in_output;
    edits_.push_back(edit);
    ++out.count;
  }
  if (pending_row >= 0) {
    cuda::LogitEdit edit{.token = ~pending_row};
    edit.in_output = 1;
    edits_.push_back(edit);
    ++out.count;
  }
  return out;
}

DeviceRows::Edits DeviceRows::add_biases(const DrawInput& input) {
  Edits out{.first = static_cast<int32_t>(edits_.size())};
  for (const auto& [token, bias] : input.params.logit_bias) {
    cuda::LogitEdit edit{.token = token};
    edit.bias = bias;
    edits_.push_back(edit);
    ++out.count;
  }
  return out;
}

DeviceRows::Edits DeviceRows::add_banned(const DrawInput& input) {
  Edits out{.first = static_cast<int32_t>(edits_.size())};
  for (const TokenId token : input.banned) {
    edits_.push_back({.token = token});
    ++out.count;
  }
  return out;
}

int32_t DeviceRows::add_mask(std::span<const uint64_t> allowed) {
  if (allowed.empty()) return -1;
  const auto first = static_cast<int32_t>(masks_.size());
  const size_t words = (static_cast<size_t>(vocab_) + 63) / 64;
  CHECK(allowed.size() >= words, "a mask shorter than the row");
  masks_.insert(masks_.end(), allowed.begin(), allowed.begin() + static_cast<int64_t>(words));
  return first;
}

void DeviceRows::skip() {
  cuda::RowSampling row{};
  row.on_host = 1;
  rows_.push_back(row);
}

bool DeviceRows::add(const DrawInput& input, int32_t pending_row) {
  if (!has_room(input)) {
    skip();
    return false;
  }
  cuda::RowSampling row{};
  const request::SamplingParams& params = input.params;
  row.random = base::random_bits(params.seed, static_cast<uint64_t>(input.position));
  row.sharpness = params.temperature > 0.0f ? scale_of(0, params.temperature).sharpness : 0.0f;
  row.top_p_share = params.top_p < 1.0f ? std::max<uint64_t>(share_bits(params.top_p), 1) : 0;
  row.least_mass = params.min_p > 0.0f ? least_mass(params.min_p) : 0;
  row.top_k = params.top_k < vocab_ ? params.top_k : 0;
  row.reported = params.logprobs;
  row.repetition_penalty = repetition_penalty_of(params.repetition_penalty);
  row.frequency_penalty = params.frequency_penalty;
  row.presence_penalty = params.presence_penalty;
  row.mask = add_mask(input.allowed);
  const Edits penalties = add_penalties(input, pending_row);
  const Edits biases = add_biases(input);
  const Edits banned = add_banned(input);
  row.penalties = penalties.first;
  row.penalty_count = penalties.count;
  row.biases = biases.first;
  row.bias_count = biases.count;
  row.banned = banned.first;
  row.banned_count = banned.count;
  rows_.push_back(row);
  return true;
}

const cuda::Sampling& DeviceRows::sampling() {
  sampling_ = {.rows = rows_.data(),
               .edits = edits_.data(),
               .masks = masks_.data(),
               .edit_count = static_cast<int32_t>(edits_.size()),
               .mask_words = static_cast<int32_t>(masks_.size()),
               .vocab = vocab_};
  return sampling_;
}

cuda::Sampled DeviceRows::sampled() {
  results_.resize(rows_.size());
  reported_.resize(rows_.size() * cuda::kReportedMax);
  return {.rows = results_.data(), .reported = reported_.data()};
}

SampledChoice DeviceRows::choice(size_t row) const {
  const cuda::SampledRow& result = results_[row];
  if (result.token < 0) return {.usable = false};
  SampledChoice choice{.token = result.token};
  if (rows_[row].reported < 0) return choice;
  const double total = log_total(result.raw_highest, result.raw_mass);
  choice.logprob = logprob(result.raw_logit, total);
  const auto first = reported_.begin() + static_cast<int64_t>(row) * cuda::kReportedMax;
  std::vector<cuda::ReportedToken> best(first, first + std::max(result.reported, 0));
  std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  });
  for (const cuda::ReportedToken& token : best) {
    choice.top.emplace_back(token.token, logprob(token.logit, total));
  }
  return choice;
}

}  // namespace pelton::sampling

#include "executor/rank_step.h"

#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::executor {
namespace {

constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

}  // namespace

void RankStepWriter::begin(RankMessage kind) {
  bytes_.clear();
  put(static_cast<int32_t>(kind));
  number_ = number_ == kMost ? 1 : number_ + 1;
  put(number_);
}

void RankStepWriter::put(int32_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void RankStepWriter::put_table(std::vector<int32_t>& sent, const int32_t* table, int32_t entries) {
  if (sent.size() < static_cast<size_t>(entries)) {
    sent.resize(static_cast<size_t>(entries), engine::kNoBlock);
  }
  put(entries);
  const size_t count_at = bytes_.size();
  int32_t changed = 0;
  put(0);
  for (int32_t i = 0; i < entries; ++i) {
    int32_t& last = sent[static_cast<size_t>(i)];
    if (last == table[i]) continue;
    put(i);
    put(table[i]);
    last = table[i];
    ++changed;
  }
  std::memcpy(bytes_.data() + count_at, &changed, sizeof changed);
}

std::string_view RankStepWriter::step(const models::ForwardInput& input) {
  begin(RankMessage::kStep);
  put(static_cast<int32_t>(input.tokens.size()));
  for (const TokenId token : input.tokens) put(token);
  put(static_cast<int32_t>(input.sequences.size()));
  for (const models::ForwardInput::Sequence& sequence : input.sequences) {
    CHECK(sequence.adapter == nullptr, "adapters are not the ranks'");
    put(sequence.slot);
    put(sequence.start);
    put(sequence.count);
    put(sequence.tables.size());
    const int32_t entries = (sequence.start + sequence.count + block_tokens_ - 1) / block_tokens_;
    if (sent_.size() <= static_cast<size_t>(sequence.slot)) {
      sent_.resize(static_cast<size_t>(sequence.slot) + 1);
    }
    auto& sent = sent_[static_cast<size_t>(sequence.slot)];
    sent.resize(sequence.tables.size());
    for (int group = 0; group < sequence.tables.size(); ++group) {
      put_table(sent[group], sequence.tables[group], entries);
    }
  }
  put(static_cast<int32_t>(input.logit_rows.size()));
  for (const int row : input.logit_rows) put(row);
  return bytes_;
}

std::string_view RankStepWriter::copies(const std::vector<engine::BlockCopy>& copies) {
  begin(RankMessage::kCopies);
  put(static_cast<int32_t>(copies.size()));
  for (const engine::BlockCopy& copy : copies) {
    put(copy.group);
    put(copy.from_tier);
    put(copy.to_tier);
    put(copy.from);
    put(copy.to);
  }
  return bytes_;
}

std::string_view RankStepWriter::compare() {
  begin(RankMessage::kCompare);
  return bytes_;
}

std::string_view RankStepWriter::bytes() {
  begin(RankMessage::kBytes);
  return bytes_;
}

Result<int32_t> RankStepReader::take(int32_t least, int32_t most) {
  int32_t value = 0;
  if (rest_.size() < sizeof value) {
    return Error{ErrorCode::kInvalidArgument, "a step's message ends too early"};
  }
  std::memcpy(&value, rest_.data(), sizeof value);
  rest_.remove_prefix(sizeof value);
  if (value >= least && value <= most) return value;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("a step's message has {} where {} to {} may be", value, least, most)};
}

Result<RankMessage> RankStepReader::read(std::string_view bytes) {
  rest_ = bytes;
  TRY_ASSIGN(const int32_t kind, take(1, 4));
  const int32_t next = number_ == kMost ? 1 : number_ + 1;
  TRY_ASSIGN(number_, take(next, next));
  const auto message = static_cast<RankMessage>(kind);
  if (message == RankMessage::kStep) TRY(read_step());
  if (message == RankMessage::kCopies) TRY(read_copies());
  if (rest_.empty()) return message;
  return Error{ErrorCode::kInvalidArgument, "a step's message goes on behind its end"};
}

Result<void> RankStepReader::read_step() {
  step_.tokens.clear();
  step_.sequences.clear();
  step_.logit_rows.clear();
  TRY_ASSIGN(const int32_t tokens, take(1, limits_.tokens));
  for (int32_t i = 0; i < tokens; ++i) {
    TRY_ASSIGN(const TokenId token, take(0, limits_.vocab - 1));
    step_.tokens.push_back(token);
  }
  TRY_ASSIGN(const int32_t sequences, take(1, tokens));
  for (int32_t i = 0; i < sequences; ++i) TRY(read_sequence());
  int64_t rows = 0;
  for (const models::ForwardInput::Sequence& sequence : step_.sequences) rows += sequence.count;
  if (rows != tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("a step of {} tokens has sequences of {}", tokens, rows)};
  }
  TRY_ASSIGN(const int32_t logit_rows, take(0, limits_.logit_rows));
  for (int32_t i = 0; i < logit_rows; ++i) {
    TRY_ASSIGN(const int32_t row, take(0, tokens - 1));
    step_.logit_rows.push_back(row);
  }
  // Only now: a table that has grown may have moved.
  for (models::ForwardInput::Sequence& sequence : step_.sequences) {
    const auto& tables = tables_[static_cast<size_t>(sequence.slot)];
    for (int group = 0; group < tables.size(); ++group) {
      sequence.tables.push_back(tables[group].data());
    }
  }
  return {};
}

Result<void> RankStepReader::read_sequence() {
  TRY_ASSIGN(const int32_t slot, take(0, limits_.slots - 1));
  TRY_ASSIGN(const int32_t start, take(0, kMost / 2));
  TRY_ASSIGN(const int32_t count, take(1, limits_.tokens));
  TRY_ASSIGN(const int32_t groups, take(limits_.blocks.size(), limits_.blocks.size()));
  if (tables_.size() <= static_cast<size_t>(slot)) tables_.resize(static_cast<size_t>(slot) + 1);
  auto& tables = tables_[static_cast<size_t>(slot)];
  tables.resize(groups);
  const int32_t needed = (start + count + limits_.block_tokens - 1) / limits_.block_tokens;
  for (int32_t group = 0; group < groups; ++group) {
    std::vector<int32_t>& table = tables[group];
    TRY_ASSIGN(const int32_t entries, take(needed, needed));
    TRY_ASSIGN(const int32_t changed, take(0, entries));
    if (table.size() < static_cast<size_t>(entries)) {
      // Each new entry is among the changes, but for those that are no block.
      table.resize(static_cast<size_t>(entries), engine::kNoBlock);
    }
    for (int32_t i = 0; i < changed; ++i) {
      TRY_ASSIGN(const int32_t at, take(0, entries - 1));
      TRY_ASSIGN(table[static_cast<size_t>(at)], take(engine::kNoBlock, limits_.blocks[group] - 1));
    }
  }
  step_.sequences.push_back({.start = start, .count = count, .tables = {}, .slot = slot});
  return {};
}

Result<void> RankStepReader::read_copies() {
  copies_.clear();
  TRY_ASSIGN(const int32_t count, take(0, kMost));
  for (int32_t i = 0; i < count; ++i) {
    engine::BlockCopy copy;
    TRY_ASSIGN(copy.group, take(0, limits_.blocks.size() - 1));
    TRY_ASSIGN(copy.from_tier, take(0, kv::kTierCount - 1));
    TRY_ASSIGN(copy.to_tier, take(0, kv::kTierCount - 1));
    TRY_ASSIGN(copy.from, take(0, kMost));
    TRY_ASSIGN(copy.to, take(0, kMost));
    copies_.push_back(copy);
  }
  return {};
}

}  // namespace pelton::executor

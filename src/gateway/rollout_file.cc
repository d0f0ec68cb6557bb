#include "gateway/rollout_file.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

constexpr size_t kRolloutsMax = 1024;
constexpr size_t kTextMax = 4096;
constexpr double kCountMax = 9e15;
constexpr int64_t kStepsMax = 64;

void write(base::JsonWriter& w, std::string_view key, const BySide<int64_t>& sides) {
  w.key(key).begin_array().integer(sides.candidate).integer(sides.others).end_array();
}

template <size_t kCount>
void write(base::JsonWriter& w, const std::array<double, kCount>& numbers) {
  w.begin_array();
  for (const double one : numbers) w.number(one);
  w.end_array();
}

void write(base::JsonWriter& w, const RankTest::Bets& bets) {
  w.begin_array();
  write(w, bets.larger);
  write(w, bets.smaller);
  w.end_array();
}

void write(base::JsonWriter& w, std::string_view key, const RankTest::Evidence& evidence) {
  w.key(key).begin_object();
  write(w, "values", evidence.values);
  w.key("at_tolerance");
  write(w, evidence.at_tolerance);
  w.key("grid").begin_array();
  for (const RankTest::Bets& one : evidence.grid) write(w, one);
  w.end_array().end_object();
}

void write(base::JsonWriter& w, const SavedRollout& one) {
  w.begin_object().key("name").string(one.name).key("identity").string(one.identity);
  w.key("tests").string(one.tests).key("phase").string(rollout_phase_name(one.state.phase));
  w.key("step").integer(static_cast<int64_t>(one.state.step));
  w.key("step_s").number(one.state.step_s).key("step_requests").integer(one.state.step_requests);
  w.key("is_promoted").boolean(one.state.is_promoted);
  w.key("reason").string(one.state.reason).key("why").string(one.state.why);
  w.key("errors").begin_object();
  write(w, "requests", one.evidence.errors.requests);
  write(w, "failed", one.evidence.errors.failed);
  w.key("log_products");
  write(w, one.evidence.errors.log_products);
  w.end_object();
  write(w, "ttft", one.evidence.ttft);
  write(w, "length", one.evidence.length);
  w.end_object();
}

Error bad(std::string_view key) {
  return Error{ErrorCode::kInvalidArgument,
               "'" + std::string(key) + "' of a roll-out is missing or wrong", std::string(key)};
}

Result<std::string> text_of(const Json& json, std::string_view key) {
  std::optional<std::string> text = json.string(key);
  if (!text || text->size() > kTextMax) return bad(key);
  return *std::move(text);
}

Result<double> number_of(const Json& json, std::string_view key, double most) {
  const std::optional<double> number = json.number(key);
  if (!number || !(*number >= 0 && *number <= most)) return bad(key);
  return *number;
}

Result<BySide<int64_t>> sides_of(const Json& json, std::string_view key) {
  const Json* list = json.find(key);
  if (list == nullptr || !list->is_array() || list->as_array().size() != 2) return bad(key);
  const auto is_count = [](const Json& one) {
    return one.is_integer() && one.as_integer() >= 0 &&
           static_cast<double>(one.as_integer()) <= kCountMax;
  };
  const Json::Array& both = list->as_array();
  if (!is_count(both[0]) || !is_count(both[1])) return bad(key);
  return BySide<int64_t>{.candidate = both[0].as_integer(), .others = both[1].as_integer()};
}

// What adds up with others' stays finite.
template <size_t kCount>
bool read(const Json* list, std::array<double, kCount>& into) {
  constexpr double kLogMax = 1e15;
  if (list == nullptr || !list->is_array() || list->as_array().size() != kCount) return false;
  for (size_t i = 0; i < kCount; ++i) {
    const Json& one = list->as_array()[i];
    if (!one.is_number() || std::abs(one.as_number()) > kLogMax) return false;
    into[i] = one.as_number();
  }
  return true;
}

bool read(const Json* pair, RankTest::Bets& into) {
  if (pair == nullptr || !pair->is_array() || pair->as_array().size() != 2) return false;
  return read(&pair->as_array()[0], into.larger) && read(&pair->as_array()[1], into.smaller);
}

Result<RankTest::Evidence> rank_of(const Json& json, std::string_view key) {
  const Json* part = json.find(key);
  if (part == nullptr) return bad(key);
  RankTest::Evidence evidence;
  TRY_ASSIGN(evidence.values, sides_of(*part, "values"));
  if (!read(part->find("at_tolerance"), evidence.at_tolerance)) return bad("at_tolerance");
  const Json* grid = part->find("grid");
  if (grid == nullptr || !grid->is_array()) return bad("grid");
  const size_t count = grid->as_array().size();
  if (count != 0 && count != RankTest::ratios().size()) return bad("grid");
  evidence.grid.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (!read(&grid->as_array()[i], evidence.grid[i])) return bad("grid");
  }
  return evidence;
}

Result<OddsTest::Evidence> odds_of(const Json& json) {
  const Json* part = json.find("errors");
  if (part == nullptr) return bad("errors");
  OddsTest::Evidence evidence;
  TRY_ASSIGN(evidence.requests, sides_of(*part, "requests"));
  TRY_ASSIGN(evidence.failed, sides_of(*part, "failed"));
  for (const ArmSide side : {ArmSide::kCandidate, ArmSide::kOthers}) {
    if (evidence.failed.of(side) > evidence.requests.of(side)) return bad("failed");
  }
  if (!read(part->find("log_products"), evidence.log_products)) return bad("log_products");
  return evidence;
}

Result<SavedRollout> decode_one(const Json& json) {
  SavedRollout one;
  TRY_ASSIGN(one.name, text_of(json, "name"));
  TRY_ASSIGN(one.identity, text_of(json, "identity"));
  TRY_ASSIGN(one.tests, text_of(json, "tests"));
  TRY_ASSIGN(const std::string phase, text_of(json, "phase"));
  const std::optional<RolloutPhase> known = rollout_phase_named(phase);
  if (!known) return bad("phase");
  one.state.phase = *known;
  const std::optional<int64_t> step = json.integer("step");
  if (!step || *step < 0 || *step > kStepsMax) return bad("step");
  one.state.step = static_cast<size_t>(*step);
  TRY_ASSIGN(one.state.step_s, number_of(json, "step_s", kCountMax));
  TRY_ASSIGN(const double requests, number_of(json, "step_requests", kCountMax));
  one.state.step_requests = static_cast<int64_t>(requests);
  one.state.is_promoted = json.boolean("is_promoted").value_or(false);
  TRY_ASSIGN(one.state.reason, text_of(json, "reason"));
  TRY_ASSIGN(one.state.why, text_of(json, "why"));
  TRY_ASSIGN(one.evidence.errors, odds_of(json));
  TRY_ASSIGN(one.evidence.ttft, rank_of(json, "ttft"));
  TRY_ASSIGN(one.evidence.length, rank_of(json, "length"));
  return one;
}

}  // namespace

std::string encode(const SavedRollouts& all) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("id").string(all.id).key("rollouts").begin_array();
  for (const SavedRollout& one : all.rollouts) write(w, one);
  w.end_array().end_object();
  return out;
}

Result<SavedRollouts> decode_rollouts(std::string_view text) {
  TRY_ASSIGN(const Json json, Json::parse(text));
  SavedRollouts all;
  TRY_ASSIGN(all.id, text_of(json, "id"));
  const Json* list = json.find("rollouts");
  if (list == nullptr || !list->is_array() || list->as_array().size() > kRolloutsMax) {
    return bad("rollouts");
  }
  for (const Json& each : list->as_array()) {
    TRY_ASSIGN(SavedRollout one, decode_one(each));
    all.rollouts.push_back(std::move(one));
  }
  return all;
}

}  // namespace pelton::gateway

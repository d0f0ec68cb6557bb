#include "launch/slurm_queue.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

namespace pelton::launch {
namespace {

using State = SlurmJob::State;

constexpr size_t kJobsMax = 20'000;
constexpr size_t kWordBytesMax = 200;

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

// The text before the separator, which is taken away with it.
std::optional<std::string_view> take_until(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(at + 1);
  return word;
}

// What is unknown counts as running: whoever holds a place is not given a second job.
State state_of(std::string_view name) {
  constexpr std::array<std::string_view, 6> kWaits = {
      "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"};
  constexpr std::array<std::string_view, 10> kOver = {
      "COMPLETED", "CANCELLED",     "FAILED",  "TIMEOUT",  "NODE_FAIL",
      "PREEMPTED", "OUT_OF_MEMORY", "REVOKED", "DEADLINE", "BOOT_FAIL"};
  if (std::ranges::find(kWaits, name) != kWaits.end()) return State::kPending;
  if (std::ranges::find(kOver, name) != kOver.end()) return State::kEnded;
  return name == "COMPLETING" ? State::kEnding : State::kRunning;
}

std::optional<ReplicaOrder> parse_comment(std::string_view text, std::string_view fleet) {
  const std::string ours = fmt::format("pelton {} ", fleet);
  if (!text.starts_with(ours)) return std::nullopt;
  text.remove_prefix(ours.size());
  const auto ordinal_text = take_until(text, ' ');
  const auto token_text = take_until(text, ' ');
  if (!ordinal_text || !token_text || text.empty()) return std::nullopt;
  const auto ordinal = number<int>(*ordinal_text);
  const auto token = number<uint64_t>(*token_text);
  if (!ordinal || *ordinal < 0 || !token) return std::nullopt;
  return ReplicaOrder{.pool = std::string(text), .ordinal = *ordinal, .token = *token};
}

std::optional<SlurmJob> parse_job(std::string_view line, std::string_view fleet) {
  const auto id_text = take_until(line, '|');
  const auto state = take_until(line, '|');
  const auto left = take_until(line, '|');
  const auto reason = take_until(line, '|');
  if (!id_text || !state || !left || !reason) return std::nullopt;
  const auto id = number<int64_t>(*id_text);
  const std::optional<ReplicaOrder> order = parse_comment(line, fleet);
  if (!id || *id < 1 || !order) return std::nullopt;
  return SlurmJob{.id = *id,
                  .state = state_of(*state),
                  .state_name = std::string(state->substr(0, kWordBytesMax)),
                  .left_s = parse_time_left(*left),
                  .reason = std::string(reason->substr(0, kWordBytesMax)),
                  .order = *order};
}

// For a shell: nothing in it means anything.
std::string quoted(std::string_view word) {
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

}  // namespace

std::string slurm_comment(std::string_view fleet, const ReplicaOrder& order) {
  return fmt::format("pelton {} {} {} {}", fleet, order.ordinal, order.token, order.pool);
}

std::vector<SlurmJob> parse_queue(std::string_view text, std::string_view fleet) {
  std::vector<SlurmJob> jobs;
  while (!text.empty() && jobs.size() < kJobsMax) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (std::optional<SlurmJob> job = parse_job(text.substr(0, end), fleet)) {
      jobs.push_back(*std::move(job));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::ranges::sort(jobs, {}, &SlurmJob::id);
  return jobs;
}

std::optional<int64_t> parse_time_left(std::string_view text) {
  constexpr int64_t kDaysMax = 100'000;
  int64_t days = 0;
  const bool has_days = text.find('-') != std::string_view::npos;
  if (const auto word = take_until(text, '-')) {
    const auto count = number<int64_t>(*word);
    if (!count || *count < 0 || *count > kDaysMax) return std::nullopt;
    days = *count;
  }
  std::vector<int64_t> parts;
  for (std::string_view rest = text;;) {
    const auto word = take_until(rest, ':');
    const auto part = number<int64_t>(word.value_or(rest));
    if (!part || *part < 0 || *part > 1'000'000 || parts.size() == 3) return std::nullopt;
    parts.push_back(*part);
    if (!word) break;
  }
  if (parts.size() < 2 || (has_days && parts.size() != 3)) return std::nullopt;
  int64_t seconds = 0;
  for (const int64_t part : parts) seconds = seconds * 60 + part;
  return days * 86'400 + seconds;
}

std::optional<int64_t> parse_job_id(std::string_view text) {
  const size_t end = text.find_first_of(";\n");
  const auto id = number<int64_t>(text.substr(0, end));
  return id && *id > 0 ? id : std::nullopt;
}

std::optional<int> parse_exit_code(std::string_view text) {
  constexpr std::string_view kField = " ExitCode=";
  const size_t at = text.find(kField);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + kField.size());
  const auto word = take_until(text, ':');
  return word ? number<int>(*word) : std::nullopt;
}

std::string batch_script(const std::vector<std::string>& words) {
  // It becomes the program: signals that are meant for the batch script reach it.
  std::string script = "#!/bin/sh\necho \"node $(hostname)\"\nexec";
  for (const std::string& word : words) script += " " + quoted(word);
  return script + "\n";
}

}  // namespace pelton::launch

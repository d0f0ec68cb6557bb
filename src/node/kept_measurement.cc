#include "node/kept_measurement.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/fingerprint.h"
#include "node/cache_folder.h"

namespace pelton::node {
namespace {

constexpr size_t kFileBytesMax = 4096;

// Of the same files and the same format.
Result<std::string> file_of(const std::string& folder, const checkpoint::Checkpoint& source) {
  TRY_ASSIGN(const std::string fingerprint, checkpoint::fingerprint(source));
  return fmt::format("{}/{}-int8.json", folder, fingerprint);
}

Result<std::string> record_file(const std::string& folder, const checkpoint::Checkpoint& source,
                                const std::string& format) {
  TRY_ASSIGN(const std::string fingerprint, checkpoint::fingerprint(source));
  return fmt::format("{}/{}-record-{}.json", folder, fingerprint, format);
}

std::optional<FormatRecord> parse_record(const std::string& text, const std::string& format) {
  const Result<Json> json = Json::parse(text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  FormatRecord record{.format = format};
  record.tokens = json->integer("tokens").value_or(0);
  record.perplexity = json->number("perplexity").value_or(0);
  record.other_perplexity = json->number("other_perplexity").value_or(0);
  record.divergence = json->number("kl_mean").value_or(-1);
  record.agreement = json->number("agreement").value_or(-1);
  const bool is_sound = record.tokens > 0 && record.perplexity >= 1 &&
                        record.other_perplexity >= 1 && record.divergence >= 0 &&
                        record.agreement >= 0 && record.agreement <= 1;
  return is_sound ? std::optional(record) : std::nullopt;
}

std::optional<FormatRecord::Tasks> parse_tasks(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const FormatRecord::Tasks tasks{.count = json->integer("tasks").value_or(0),
                                  .score = json->number("score").value_or(-1),
                                  .other_score = json->number("other_score").value_or(-1),
                                  .p = json->number("p").value_or(-1)};
  const auto is_share = [](double one) { return one >= 0 && one <= 1; };
  const bool is_sound =
      tasks.count > 0 && is_share(tasks.score) && is_share(tasks.other_score) && is_share(tasks.p);
  return is_sound ? std::optional(tasks) : std::nullopt;
}

Result<void> write_record(const std::string& folder, const std::string& file, const Json& json) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be made: {}", folder, failed.message())};
  }
  return base::write_file(file, json.dump() + "\n");
}

std::optional<std::string> kept_text(const Result<std::string>& file) {
  if (!file.ok() || !std::filesystem::exists(*file)) return std::nullopt;
  Result<std::string> text = base::read_file(*file, kFileBytesMax);
  return text.ok() ? std::optional(*std::move(text)) : std::nullopt;
}

constexpr const char* kTasks = "-tasks";  // behind a format's name

// All that there can be.
constexpr const char* kFormats[] = {"weights-int8", "weights-shipped", "kv-int8",
                                    "kv-fp8",       "kv-bf16",         "kv-f16"};

}  // namespace

std::string FormatRecord::text() const {
  const std::string text = fmt::format(
      "perplexity {:.4f} instead of {:.4f}, {:.1e} nats of divergence, another likeliest token at "
      "{:.1f} % of positions, over {} tokens of a text",
      other_perplexity, perplexity, divergence, 100 * (1 - agreement), tokens);
  if (!tasks) return text + "; no tasks were asked of it (pelton eval MODEL --against)";
  return text + fmt::format("; right answers {:.1f} % instead of {:.1f} % of {} tasks (p {:.2g})",
                            100 * tasks->other_score, 100 * tasks->score, tasks->count, tasks->p);
}

Result<void> keep_record(const std::string& folder, const checkpoint::Checkpoint& source,
                         const FormatRecord& record) {
  if (folder.empty() || std::ranges::find(kFormats, record.format) == std::end(kFormats)) return {};
  TRY_ASSIGN(const std::string file, record_file(folder, source, record.format));
  Json json;
  json.set("format", record.format).set("tokens", record.tokens);
  json.set("perplexity", record.perplexity).set("other_perplexity", record.other_perplexity);
  json.set("kl_mean", record.divergence).set("agreement", record.agreement);
  return write_record(folder, file, json);
}

Result<void> keep_task_scores(const std::string& folder, const checkpoint::Checkpoint& source,
                              const std::string& format, const FormatRecord::Tasks& tasks) {
  if (folder.empty() || std::ranges::find(kFormats, format) == std::end(kFormats)) return {};
  TRY_ASSIGN(const std::string file, record_file(folder, source, format + kTasks));
  Json json;
  json.set("format", format).set("tasks", tasks.count).set("p", tasks.p);
  json.set("score", tasks.score).set("other_score", tasks.other_score);
  return write_record(folder, file, json);
}

std::vector<FormatRecord> kept_records(const std::string& folder,
                                       const checkpoint::Checkpoint& source) {
  std::vector<FormatRecord> records;
  if (folder.empty()) return records;
  for (const char* const format : kFormats) {
    const std::optional<std::string> text = kept_text(record_file(folder, source, format));
    std::optional<FormatRecord> record = text ? parse_record(*text, format) : std::nullopt;
    if (!record) continue;
    const auto tasks = kept_text(record_file(folder, source, std::string(format) + kTasks));
    if (tasks) record->tasks = parse_tasks(*tasks);
    records.push_back(*std::move(record));
  }
  return records;
}

std::string measurements_folder() {
  return cache_folder("measured");
}

Result<void> keep_measurement(const std::string& folder, const checkpoint::Checkpoint& source,
                              const models::PackedModel& made) {
  const bool is_int8 = made.weights == layers::MatrixWeights::kInt8 && made.coarse_head;
  if (folder.empty() || !is_int8 || !made.measured) return {};
  TRY_ASSIGN(const std::string file, file_of(folder, source));
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be made: {}", folder, failed.message())};
  }
  Json json;
  json.set("activations", std::string(layers::name_of(made.activations)));
  json.set("agreement", made.measured->loss.agreement);
  json.set("divergence", made.measured->loss.divergence);
  return base::write_file(file, json.dump() + "\n");
}

std::optional<std::string> kept_measurement(const std::string& folder,
                                            const checkpoint::Checkpoint& source) {
  if (folder.empty()) return std::nullopt;
  const Result<std::string> file = file_of(folder, source);
  if (!file.ok() || !std::filesystem::exists(*file)) return std::nullopt;
  const Result<std::string> text = base::read_file(*file, kFileBytesMax);
  if (!text.ok()) return std::nullopt;
  const Result<Json> json = Json::parse(*text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto agreement = json->number("agreement");
  const auto divergence = json->number("divergence");
  const auto activations = json->string("activations");
  const bool is_sound = agreement && divergence && activations && *agreement >= 0 &&
                        *agreement <= 1 && std::isfinite(*divergence) &&
                        (*activations == "int8" || *activations == "int16");
  if (!is_sound) return std::nullopt;
  return fmt::format(
      "8 bits (activations {}) changed the likeliest token at {:.1f} % of positions of a text and "
      "diverged by {:.1e} nats when pelton pack measured it",
      *activations, 100 * (1 - *agreement), *divergence);
}

}  // namespace pelton::node

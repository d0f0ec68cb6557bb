#include "workload/spec.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "cli/command_line.h"

namespace pelton::workload {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr size_t kFileBytesMax = size_t{1} << 30;
// Keys, and the data sets for which they say anything: r(andom), p(refix_repetition), s(haregpt),
// c(ustom), t(race). Whether there is a `file` parse_spec() says.
constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
    {"name", "rpsct"},       {"dataset", "rpsct"},    {"preset", "r"},
    {"input_tokens", "r"},   {"output_tokens", "rp"}, {"range_ratio", "r"},
    {"prefix_tokens", "rp"}, {"turns", "rsc"},        {"think_s", "rsc"},
    {"prefix_count", "p"},   {"suffix_tokens", "p"},  {"file", "rpsct"},
    {"speed", "t"},          {"count", "rpsct"},      {"rate", "rpsc"},
    {"burstiness", "rpsc"},  {"ramp", "rpsc"},        {"day", "rpsc"},
    {"spikes", "rpsc"},      {"seed", "rpsct"},       {"concurrency_max", "rpsct"}};
constexpr std::pair<WorkloadSpec::Dataset, std::string_view> kDatasets[] = {
    {WorkloadSpec::Dataset::kRandom, "random"},
    {WorkloadSpec::Dataset::kPrefixRepetition, "prefix_repetition"},
    {WorkloadSpec::Dataset::kShareGpt, "sharegpt"},
    {WorkloadSpec::Dataset::kCustom, "custom"},
    {WorkloadSpec::Dataset::kTrace, "trace"}};

class Fields {
 public:
  Fields(const Json& json, const std::string& origin) : json_(json), origin_(origin) {}

  Error bad(std::string_view key, const std::string& what) const {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: '{}' {}", origin_, key, what),
                 std::string(key)};
  }
  template <typename T>
  Result<void> integer(std::string_view key, int64_t least, int64_t most, T& into) const {
    const Json* const found = json_.find(key);
    if (found == nullptr) return {};
    if (!found->is_integer() || found->as_integer() < least || found->as_integer() > most) {
      return bad(key, fmt::format("must be a whole number from {} to {}", least, most));
    }
    into = static_cast<T>(found->as_integer());
    return {};
  }
  Result<void> number(std::string_view key, double least, double most, double& into) const {
    const Json* const found = json_.find(key);
    if (found == nullptr) return {};
    if (!found->is_number() || !(found->as_number() >= least && found->as_number() <= most)) {
      return bad(key, fmt::format("must be a number from {} to {}", least, most));
    }
    into = found->as_number();
    return {};
  }
  Result<std::string> text(std::string_view key, const std::string& otherwise) const {
    const Json* const found = json_.find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_string()) return bad(key, "must be a text");
    return found->as_string();
  }
  const Json& json() const { return json_; }
  const std::string& origin() const { return origin_; }

 private:
  const Json& json_;
  const std::string& origin_;
};

// That an object within a workload has no other keys than these.
Result<void> expect_only(const Fields& fields, const std::string& what,
                         const std::vector<std::string>& keys) {
  if (!fields.json().is_object()) return fields.bad(what, "must be an object");
  for (const Json::Member& member : fields.json().as_object()) {
    if (std::ranges::find(keys, member.key) != keys.end()) continue;
    const std::optional<std::string> near = cli::nearest(member.key, keys);
    return fields.bad(member.key, fmt::format("is no key of {}{}; those are {}", what,
                                              near ? "; did you mean '" + *near + "'?" : "",
                                              fmt::join(keys, ", ")));
  }
  return {};
}

Result<void> read_keys(const Fields& fields) {
  std::vector<std::string> keys;
  for (const auto& [key, datasets] : kKeys) keys.emplace_back(key);
  return expect_only(fields, "a workload", keys);
}

// A key that says nothing of this data set would be another workload than its author thinks.
Result<void> check_effects(const Fields& fields, std::string_view dataset) {
  for (const auto& [key, datasets] : kKeys) {
    if (fields.json().find(key) == nullptr || datasets.find(dataset.front()) != datasets.npos) {
      continue;
    }
    return fields.bad(key, fmt::format("has no effect on the data set {}", dataset));
  }
  return {};
}

Result<void> read_lengths(const Fields& fields, WorkloadSpec& spec) {
  TRY_ASSIGN(const std::string preset, fields.text("preset", ""));
  if (!preset.empty()) {
    TRY_ASSIGN(spec.lengths, preset_lengths(preset));
  }
  constexpr int64_t kMost = 10'000'000;
  TRY(fields.integer("input_tokens", 1, kMost, spec.lengths.input_tokens));
  TRY(fields.integer("output_tokens", 1, kMost, spec.lengths.output_tokens));
  TRY(fields.number("range_ratio", 0, 0.999, spec.lengths.range_ratio));
  TRY(fields.integer("prefix_tokens", 0, kMost, spec.lengths.prefix_tokens));
  TRY(fields.integer("turns", 1, 1000, spec.turns.count));
  TRY(fields.number("think_s", 0, 3600, spec.turns.think_s));
  if (spec.dataset == WorkloadSpec::Dataset::kPrefixRepetition) {
    TRY(fields.integer("prefix_tokens", 0, kMost, spec.prefixes.prefix_tokens));
    TRY(fields.integer("output_tokens", 1, kMost, spec.prefixes.output_tokens));
  }
  TRY(fields.integer("suffix_tokens", 1, kMost, spec.prefixes.suffix_tokens));
  TRY(fields.integer("prefix_count", 1, 1'000'000, spec.prefixes.prefix_count));
  return {};
}

Result<void> read_spikes(const Fields& fields, std::vector<Spike>& into) {
  constexpr size_t kSpikesMax = 1000;
  const Json* const spikes = fields.json().find("spikes");
  if (spikes == nullptr) return {};
  if (!spikes->is_array() || spikes->as_array().size() > kSpikesMax) {
    return fields.bad("spikes", fmt::format("must be a list of at most {}", kSpikesMax));
  }
  for (const Json& one : spikes->as_array()) {
    const Fields inner(one, fields.origin());
    TRY(expect_only(inner, "spikes", {"at_s", "for_s", "rps"}));
    Spike& spike = into.emplace_back();
    TRY(inner.number("at_s", 0, 1e9, spike.at_s));
    TRY(inner.number("for_s", 1e-3, 1e9, spike.for_s));
    TRY(inner.number("rps", 1e-6, 1e9, spike.rps));
  }
  return {};
}

Result<void> read_arrivals(const Fields& fields, WorkloadSpec& spec) {
  Arrivals& arrivals = spec.arrivals;
  arrivals.rate = kInfinite;
  const Json* const rate = fields.json().find("rate");
  if (rate != nullptr && !(*rate == Json("inf"))) {
    TRY(fields.number("rate", 1e-6, 1e9, arrivals.rate));
  }
  TRY(fields.number("burstiness", 1e-3, 1e6, arrivals.burstiness));
  if (const Json* const ramp = fields.json().find("ramp")) {
    const Fields inner(*ramp, fields.origin());
    TRY(expect_only(inner, "ramp", {"shape", "start_rps", "end_rps"}));
    TRY_ASSIGN(const std::string shape, inner.text("shape", "linear"));
    if (shape != "linear" && shape != "exponential") {
      return inner.bad("shape", "must be linear or exponential");
    }
    arrivals.ramp.emplace();
    arrivals.ramp->shape = shape == "linear" ? Ramp::Shape::kLinear : Ramp::Shape::kExponential;
    TRY(inner.number("start_rps", 1e-6, 1e9, arrivals.ramp->start_rps));
    TRY(inner.number("end_rps", 1e-6, 1e9, arrivals.ramp->end_rps));
  }
  if (const Json* const day = fields.json().find("day")) {
    const Fields inner(*day, fields.origin());
    TRY(expect_only(inner, "day", {"swing", "period_s"}));
    arrivals.day.emplace();
    TRY(inner.number("swing", 0, 1, arrivals.day->swing));
    TRY(inner.number("period_s", 1e-3, 1e9, arrivals.day->period_s));
  }
  TRY(read_spikes(fields, arrivals.spikes));
  arrivals.seed = spec.seed;
  return {};
}

// An input that is missing is no missing model.
Error input_error(const Error& error, const char* field) {
  return Error{ErrorCode::kIo, error.message, field};
}

Result<Trace> read_trace(std::string_view text, const WorkloadSpec& spec,
                         const Vocabulary& vocabulary) {
  return trace_conversations(text, spec.file,
                             {.count = spec.count, .speed = spec.trace_speed, .seed = spec.seed},
                             vocabulary);
}

// A log that somebody still writes, and may cut off, is read; what is large is mapped, and read as
// far as its bounds allow.
Result<Trace> trace_of(const WorkloadSpec& spec, const Vocabulary& vocabulary) {
  constexpr size_t kReadBytesMax = size_t{64} << 20;
  const Result<std::string> read = base::read_file(spec.file, kReadBytesMax);
  if (read.ok()) return read_trace(*read, spec, vocabulary);
  const Result<base::MappedFile> file = base::MappedFile::open(spec.file);
  if (!file.ok()) return input_error(file.error(), "file");
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  return read_trace(text, spec, vocabulary);
}

Result<Workload> traced(const WorkloadSpec& spec, const Vocabulary& vocabulary) {
  TRY_ASSIGN(Trace trace, trace_of(spec, vocabulary));
  Workload workload{.note = trace_note(spec.file, trace)};
  workload.conversations = std::move(trace.conversations);
  for (const Conversation& conversation : workload.conversations) {
    workload.at_s.push_back(conversation.at_s.value_or(0));
  }
  return workload;
}

Result<std::vector<Conversation>> recorded(const WorkloadSpec& spec, const Vocabulary& vocabulary) {
  const Result<std::string> read = base::read_file(spec.file, kFileBytesMax);
  if (!read.ok()) return input_error(read.error(), "file");
  const std::string& text = *read;
  const RecordedOptions options{.count = spec.count,
                                .turns_max = spec.turns.count,
                                .think_s = spec.turns.think_s,
                                .seed = spec.seed};
  if (spec.dataset == WorkloadSpec::Dataset::kShareGpt) {
    return sharegpt_conversations(text, spec.file, options, vocabulary);
  }
  return custom_conversations(text, spec.file, options, vocabulary);
}

Result<std::vector<Conversation>> conversations_of(const WorkloadSpec& spec,
                                                   const Vocabulary& vocabulary) {
  if (spec.dataset == WorkloadSpec::Dataset::kRandom) {
    return random_conversations(spec.lengths, spec.turns, spec.count, vocabulary, spec.seed);
  }
  if (spec.dataset == WorkloadSpec::Dataset::kPrefixRepetition) {
    return prefix_repetition(spec.prefixes, spec.count, vocabulary, spec.seed);
  }
  return recorded(spec, vocabulary);
}

}  // namespace

Result<WorkloadSpec> parse_spec(const Json& json, const std::string& origin) {
  const Fields fields(json, origin);
  TRY(read_keys(fields));
  WorkloadSpec spec;
  TRY_ASSIGN(spec.name, fields.text("name", origin));
  TRY_ASSIGN(const std::string dataset, fields.text("dataset", "random"));
  const auto found = std::find_if(std::begin(kDatasets), std::end(kDatasets),
                                  [&](const auto& known) { return known.second == dataset; });
  if (found == std::end(kDatasets)) {
    return fields.bad("dataset", "must be random, prefix_repetition, sharegpt, custom or trace");
  }
  spec.dataset = found->first;
  TRY(check_effects(fields, dataset));
  TRY_ASSIGN(spec.file, fields.text("file", ""));
  const bool is_made = spec.dataset == WorkloadSpec::Dataset::kRandom ||
                       spec.dataset == WorkloadSpec::Dataset::kPrefixRepetition;
  if (spec.file.empty() != is_made) {
    return fields.bad("file", is_made ? "is of no use to a random dataset" : "is missing");
  }
  if (spec.dataset == WorkloadSpec::Dataset::kTrace) spec.count = 0;
  TRY(fields.integer("count", is_made ? 1 : 0, 10'000'000, spec.count));
  TRY(fields.integer("seed", 0, std::numeric_limits<int64_t>::max(), spec.seed));
  TRY(fields.number("speed", 1e-6, 1e6, spec.trace_speed));
  TRY(read_lengths(fields, spec));
  TRY(read_arrivals(fields, spec));
  int concurrency = 0;
  TRY(fields.integer("concurrency_max", 1, 1'000'000, concurrency));
  if (concurrency > 0) spec.concurrency_max = concurrency;
  return spec;
}

Result<WorkloadSpec> read_spec(const std::string& preset_or_file) {
  if (Result<RandomLengths> preset = preset_lengths(preset_or_file); preset.ok()) {
    WorkloadSpec spec{.name = preset_or_file, .lengths = *preset};
    spec.arrivals.rate = kInfinite;
    return spec;
  }
  const Result<std::string> text = base::read_file(preset_or_file, kFileBytesMax);
  if (!text.ok()) return input_error(text.error(), "workload");
  const Result<Json> json = Json::parse(*text);
  if (!json.ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {}", preset_or_file, json.error().message), "workload"};
  }
  return parse_spec(*json, preset_or_file);
}

Result<Workload> make_workload(const WorkloadSpec& spec, const Vocabulary& vocabulary) {
  if (spec.dataset == WorkloadSpec::Dataset::kTrace) return traced(spec, vocabulary);
  Workload workload;
  TRY_ASSIGN(workload.conversations, conversations_of(spec, vocabulary));
  TRY_ASSIGN(workload.at_s,
             arrival_times(spec.arrivals, static_cast<int64_t>(workload.conversations.size())));
  return workload;
}

Vocabulary ids_vocabulary(int count) {
  std::vector<Vocabulary::Word> words;
  for (int id = 0; id < std::max(count, 1); ++id) words.push_back({.text = "", .id = id});
  constexpr size_t kBytesPerToken = 4;
  return Vocabulary(std::move(words), [](std::string_view text) {
    return static_cast<int>((text.size() + kBytesPerToken - 1) / kBytesPerToken);
  });
}

}  // namespace pelton::workload

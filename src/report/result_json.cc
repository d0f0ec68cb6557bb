#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "report/percentile.h"
#include "report/serve_result.h"

namespace pelton::report {
namespace {

using base::JsonWriter;

constexpr size_t kTimelineMax = 2000;  // points that a plot can show

void write_info(JsonWriter& w, const RunInfo& info) {
  w.key("date").string(info.date);
  w.key("endpoint_type").string(info.backend);
  w.key("backend").string(info.backend);
  w.key("label");
  if (info.label.empty()) {
    w.null();
  } else {
    w.string(info.label);
  }
  w.key("model_id").string(info.model);
  w.key("tokenizer_id").string(info.tokenizer);
  w.key("dataset_name").string(info.dataset);
  w.key("num_prompts").integer(info.num_prompts);
  for (const auto& [key, value] : info.metadata) w.key(key).string(value);
  w.key("request_rate");
  if (std::isfinite(info.request_rate)) {
    w.number(info.request_rate);
  } else {
    w.string("inf");
  }
  w.key("burstiness").number(info.burstiness);
  if (info.documents_each > 0) w.key("documents_per_request").integer(info.documents_each);
  w.key("max_concurrency");
  if (info.max_concurrency) {
    w.integer(*info.max_concurrency);
  } else {
    w.null();
  }
}

void write_summary(JsonWriter& w, const Summary& summary) {
  w.key("duration").number(summary.duration_s);
  w.key("completed").integer(summary.completed);
  w.key("failed").integer(summary.failed);
  w.key("total_input_tokens").integer(summary.input_tokens);
  w.key("total_output_tokens").integer(summary.output_tokens);
  w.key("request_throughput").number(summary.requests_per_s);
  w.key("request_goodput");
  if (summary.good_requests_per_s) {
    w.number(*summary.good_requests_per_s);
  } else {
    w.null();
  }
  w.key("output_throughput").number(summary.output_tokens_per_s);
  w.key("total_token_throughput").number(summary.total_tokens_per_s);
  if (summary.timing != TokenTiming::kMeans) {
    w.key("max_output_tokens_per_s").number(summary.peak_output_tokens_per_s);
  }
  w.key("max_concurrent_requests").integer(summary.peak_concurrency);
}

void write_metrics(JsonWriter& w, const Summary& summary, const Shown& shown) {
  for (const auto& [metric, values] : summary.values_ms) {
    const std::string_view key = info(metric).key;
    w.key(fmt::format("mean_{}_ms", key)).number(mean(values));
    w.key(fmt::format("median_{}_ms", key)).number(percentile(values, 50));
    w.key(fmt::format("std_{}_ms", key)).number(standard_deviation(values));
    for (const double percent : shown.percents) {
      w.key(fmt::format("p{}_{}_ms", percent_word(percent), key))
          .number(percentile(values, percent));
    }
  }
}

// Enough of each distribution to draw it: every percent, and the tail in thousandths.
void write_quantiles(JsonWriter& w, const Summary& summary) {
  w.key("quantiles_ms").begin_object();
  for (const auto& [metric, values] : summary.values_ms) {
    w.key(info(metric).key).begin_array();
    for (int i = 0; i < 99; ++i) w.number(percentile(values, i));
    for (int i = 0; i <= 10; ++i) w.number(percentile(values, 99 + i * 0.1));
    w.end_array();
  }
  w.end_object();
}

void write_timeline(JsonWriter& w, std::span<const RequestRecord> records) {
  w.key("tokens_by_second").begin_array();
  for (const int64_t tokens : tokens_by_second(records)) w.integer(tokens);
  w.end_array();
  // [[seconds, running], …]; of many steps the highest of each stretch stays.
  const std::vector<ConcurrencyStep> steps = concurrency_steps(records);
  const size_t stride = steps.size() / kTimelineMax + 1;
  w.key("concurrency").begin_array();
  for (size_t i = 0; i < steps.size(); i += stride) {
    const auto begin = steps.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end =
        steps.begin() + static_cast<std::ptrdiff_t>(std::min(i + stride, steps.size()));
    const auto highest = std::max_element(
        begin, end, [](const auto& a, const auto& b) { return a.running < b.running; });
    w.begin_array().number(static_cast<double>(begin->at_ns) * 1e-9);
    w.integer(i + stride >= steps.size() ? std::prev(end)->running : highest->running).end_array();
  }
  w.end_array();
}

void write_own(JsonWriter& w, const RunInfo& run, const Summary& summary,
               std::span<const RequestRecord> records) {
  w.key("pelton").begin_object();
  w.key("base_url").string(run.base_url);
  w.key("endpoint").string(run.endpoint);
  if (run.begun_ns != 0) w.key("begun_ns").integer(run.begun_ns);
  w.key("input_len").integer(run.input_len);
  w.key("output_len").integer(run.output_len);
  w.key("hardware").string(run.hardware);
  w.key("token_timing").string(timing_words(summary.timing));
  w.key("tokens_told").boolean(summary.timing == TokenTiming::kReported);
  w.key("tokens_per_s_per_user").number(tokens_per_s_per_user(summary));
  w.key("reasoning_tokens").integer(summary.reasoning_tokens);
  w.key("cached_tokens").integer(summary.cached_tokens);
  w.key("output_bytes").integer(summary.output_bytes);
  w.key("output_characters").integer(summary.output_characters);
  const GeneratorWatch& watch = run.generator;
  w.key("generator").begin_object();
  w.key("late_median_ms").number(watch.late_median_ms);
  w.key("late_p99_ms").number(watch.late_p99_ms);
  w.key("late_max_ms").number(watch.late_max_ms);
  w.key("busiest_thread_share").number(watch.busiest_thread_share);
  w.key("cpu_s").number(watch.cpu_s);
  w.key("threads").integer(watch.threads);
  w.key("limit").string(watch.limit).end_object();
  w.key("errors").begin_object();
  for (const auto& [error, count] : summary.errors) w.key(error).integer(count);
  w.end_object();
  w.key("definitions").begin_object();
  for (const MetricInfo& metric : all_metrics()) w.key(metric.key).string(metric.definition);
  w.end_object();
  write_quantiles(w, summary);
  write_timeline(w, records);
  w.end_object();
}

// One number of each request, in the order of the records.
template <typename Number>
void write_list(JsonWriter& w, std::string_view key, std::span<const RequestRecord> records,
                const Number& number) {
  w.key(key).begin_array();
  for (const RequestRecord& record : records) w.number(number(record));
  w.end_array();
}

void write_details(JsonWriter& w, std::span<const RequestRecord> records) {
  const auto seconds = [](int64_t from_ns, int64_t to_ns) {
    return to_ns < 0 ? 0 : static_cast<double>(to_ns - from_ns) * 1e-9;
  };
  write_list(w, "input_lens", records, [](const auto& r) { return double(r.input_tokens); });
  write_list(w, "output_lens", records, [](const auto& r) { return double(r.output_tokens); });
  write_list(w, "ttfts", records, [&](const RequestRecord& r) {
    return r.pieces.empty() ? 0 : seconds(r.start_ns, r.pieces.front().at_ns);
  });
  write_list(w, "latencies", records,
             [&](const RequestRecord& r) { return seconds(r.start_ns, r.end_ns); });
  write_list(w, "start_times", records, [&](const auto& r) { return seconds(0, r.start_ns); });
  write_list(w, "queue_times", records,
             [&](const auto& r) { return seconds(r.due_ns, r.start_ns); });
  w.key("itls").begin_array();
  for (const RequestRecord& record : records) {
    w.begin_array();
    for (size_t i = 1; i < record.pieces.size(); ++i) {
      w.number(seconds(record.pieces[i - 1].at_ns, record.pieces[i].at_ns));
    }
    w.end_array();
  }
  w.end_array();
  w.key("generated_texts").begin_array();
  for (const RequestRecord& record : records) w.string(record.text);
  w.end_array();
  w.key("errors").begin_array();
  for (const RequestRecord& record : records) w.string(record.error);
  w.end_array();
}

// What may stand in a file's name.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
    out += good ? c : '_';
  }
  return out;
}

}  // namespace

std::string result_json(const RunInfo& info, const Summary& summary, const Shown& shown,
                        std::span<const RequestRecord> records, bool detailed) {
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  write_info(w, info);
  write_summary(w, summary);
  write_metrics(w, summary, shown);
  if (detailed) write_details(w, records);
  write_own(w, info, summary, records);
  w.end_object();
  out += '\n';
  return out;
}

std::string result_file_name(const RunInfo& info) {
  const std::string label = info.label.empty() ? info.backend : info.label;
  const std::string concurrency =
      info.max_concurrency ? fmt::format("-concurrency{}", *info.max_concurrency) : "";
  const size_t slash = info.model.rfind('/');
  const std::string model = slash == std::string::npos ? info.model : info.model.substr(slash + 1);
  const std::string rate =
      std::isfinite(info.request_rate) ? fmt::format("{}", info.request_rate) : "inf";
  return fmt::format("{}-{}qps{}-{}-{}.json", plain(label), rate, concurrency, plain(model),
                     info.date);
}

Result<Json> parse_result(std::string_view text, const std::string& name) {
  const auto bad = [&](const std::string& why) {
    return Error{ErrorCode::kInvalidArgument, name + ": " + why, {}};
  };
  Result<Json> json = Json::parse(text);
  if (!json) return bad(json.error().message);
  if (!json->number("duration") || !json->number("completed")) {
    return bad("is no result of a serving benchmark: \"duration\" or \"completed\" is missing");
  }
  return json;
}

}  // namespace pelton::report

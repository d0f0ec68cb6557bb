// The result of a serving benchmark as people and programs read it: the printed block and the JSON
// file, both laid out as `vllm bench serve` does, so that scripts carry over. What is Pelton's own
// stands behind the block, and under the key "pelton". Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "report/summary.h"

namespace pelton::report {

// Whether the load generator itself was up to it.
struct GeneratorWatch {
  double late_median_ms = 0;  // from when a request could have been sent to its sending
  double late_p99_ms = 0;
  double late_max_ms = 0;
  double busiest_thread_share = 0;  // of a core, over the run
  double cpu_s = 0;                 // of the whole process
  int threads = 0;
  std::string limit;  // why the generator, not the server, was the limit; empty: it was not
};

struct RunInfo {
  std::string date;  // "20260131-235959", local time
  std::string backend;
  std::string endpoint;  // "/v1/chat/completions"
  std::string base_url;
  std::string label;
  std::string model;
  std::string tokenizer;
  std::string dataset;
  int64_t begun_ns = 0;  // on this machine's monotonic clock, as step logs are; 0: virtual time
  int64_t num_prompts = 0;
  double request_rate = 0;  // may be infinite
  double burstiness = 1;
  std::optional<int> max_concurrency;
  int64_t input_len = 0;  // asked for; 0: the data set says
  int64_t output_len = 0;
  int64_t documents_each = 0;  // of a request that asks for them in order; 0: none does
  std::string hardware;        // of this machine, which may not be the server's
  std::map<std::string, std::string> metadata;
  GeneratorWatch generator;
};

struct Shown {
  std::vector<Metric> metrics;
  std::vector<double> percents;
};

std::string result_text(const RunInfo& info, const Summary& summary, const Shown& shown);

// The file's JSON. `detailed` (may be empty) adds the lists of every request.
std::string result_json(const RunInfo& info, const Summary& summary, const Shown& shown,
                        std::span<const RequestRecord> records, bool detailed);

// "{label}-{rate}qps[-concurrency{N}]-{model}-{date}.json", as vLLM names it.
std::string result_file_name(const RunInfo& info);

// A file's text read back. Any file with "duration" and "completed" will do, vLLM's own among them.
Result<Json> parse_result(std::string_view text, const std::string& name);

std::string_view timing_words(TokenTiming timing);

}  // namespace pelton::report

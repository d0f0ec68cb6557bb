// pelton bench bandwidth: how fast this machine's memory can be read, by all threads together.
#include <algorithm>

#include <fmt/format.h>

#include "apps/bandwidth_probe.h"
#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "cli/human_size.h"

namespace pelton::apps {
namespace {

// One way of reading, over the rounds.
struct Way {
  std::string_view name;
  std::vector<double> rates;  // bytes a second, sorted

  double median() const { return rates[rates.size() / 2]; }
};

std::vector<Way> measure(BandwidthProbe& probe, int runs) {
  const base::SystemClock clock;
  std::vector<Way> ways;
  for (int round = 0; round < runs; ++round) {
    const std::vector<BandwidthProbe::Pass> passes = probe.measure(clock);
    ways.resize(passes.size());
    for (size_t i = 0; i < passes.size(); ++i) {
      ways[i].name = passes[i].way;
      ways[i].rates.push_back(passes[i].bytes_per_second);
    }
  }
  for (Way& way : ways) std::sort(way.rates.begin(), way.rates.end());
  return ways;
}

std::string to_text(const std::vector<Way>& ways, int threads, int64_t bytes) {
  std::string out = fmt::format("{} threads read {} together: median, lowest and highest\n",
                                threads, cli::format_bytes(static_cast<double>(bytes)));
  for (const Way& way : ways) {
    out += fmt::format("{:<34} {:>10}/s {:>10}/s {:>10}/s\n", way.name,
                       cli::format_bytes(way.median()), cli::format_bytes(way.rates.front()),
                       cli::format_bytes(way.rates.back()));
  }
  return out;
}

std::string to_json(const std::vector<Way>& ways, int threads, int64_t bytes) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object();
  w.key("threads").integer(threads);
  w.key("buffer_bytes").integer(bytes);
  w.key("ways").begin_array();
  for (const Way& way : ways) {
    w.begin_object();
    w.key("way").string(way.name);
    w.key("median").number(way.median());
    w.key("min").number(way.rates.front());
    w.key("max").number(way.rates.back());
    w.end_object();
  }
  w.end_array();
  w.end_object();
  out += '\n';
  return out;
}

Result<void> run_bench_bandwidth(const cli::Arguments& arguments) {
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(nullptr));
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  BandwidthProbe probe(pool, BandwidthProbe::bytes_of(arguments));
  const std::vector<Way> ways = measure(probe, static_cast<int>(arguments.integer("--runs")));
  const int64_t bytes = probe.buffer_bytes();
  if (arguments.has("--json")) {
    const std::string json = to_json(ways, pool.size(), bytes);
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(ways, pool.size(), bytes));
}

}  // namespace

cli::Verb bench_bandwidth_verb() {
  return {
      .name = "bench bandwidth",
      .summary = "Measures how fast memory can be read.",
      .about =
          "All threads together read one large buffer, in several ways by turns. The fastest\n"
          "way is what pelton bench latency calls bandwidth_probe. Where other guests share\n"
          "the memory it moves within minutes: measure beside what you compare with it.",
      .flags = {threads_flag(),
                {.name = "--runs",
                 .value = "R",
                 .help = "rounds of all ways",
                 .kind = cli::Flag::Kind::kSize,
                 .default_text = "5",
                 .least = 1,
                 .most = 1000},
                BandwidthProbe::buffer_size_flag(),
                {.name = "--json", .value = "FILE", .help = "also write the numbers; - is stdout"}},
      .examples = {"pelton bench bandwidth", "pelton bench bandwidth --threads 1 --runs 20"},
      .run = run_bench_bandwidth,
  };
}

}  // namespace pelton::apps

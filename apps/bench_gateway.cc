// pelton bench gateway: what a gateway adds, before sinks that compute nothing.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/own_server.h"
#include "apps/verbs.h"
#include "apps/work_folder.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "bench/frame_sink.h"
#include "bench/stream_load.h"
#include "cli/human_size.h"
#include "cli/interrupt.h"
#include "cluster/block_names.h"
#include "cluster/fleet_key.h"
#include "net/http_client.h"

namespace pelton::apps {
namespace {

using bench::percentile;
using bench::StreamQuestion;
using bench::StreamTimes;
using cli::Flag;

constexpr int kSinks = 2;
constexpr int kReadyTries = 300;  // of 100 ms

// The gateway has the first of the processors, this process the others: where there are two.
class Processors {
 public:
  Processors() {
    if (::sched_getaffinity(0, sizeof all_, &all_) != 0 || CPU_COUNT(&all_) < 2) return;
    CPU_ZERO(&first_);
    others_ = all_;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (!CPU_ISSET(i, &all_)) continue;
      CPU_SET(i, &first_);
      CPU_CLR(i, &others_);
      break;
    }
    apart_ = true;
  }
  ~Processors() { use(all_); }
  Processors(const Processors&) = delete;
  Processors& operator=(const Processors&) = delete;

  bool apart() const { return apart_; }
  // For threads and processes that this thread starts from now on.
  void take_first() const { use(first_); }
  void take_others() const { use(others_); }

 private:
  void use(const cpu_set_t& set) const {
    if (apart_) ::sched_setaffinity(0, sizeof set, &set);
  }

  bool apart_ = false;
  cpu_set_t all_{};
  cpu_set_t first_{};
  cpu_set_t others_{};
};

// Whom a request is sent to: the sink itself, the gateway before it, or others' proxies.
struct Way {
  std::string name;
  net::HttpCall call;
  std::vector<StreamTimes> rounds;

  // The median over the rounds.
  double first_byte_ms(double share) const {
    std::vector<double> of_rounds;
    for (const StreamTimes& round : rounds) {
      of_rounds.push_back(percentile(round.first_byte_ms, share));
    }
    return percentile(of_rounds, 0.5);
  }
  int64_t answered() const {
    int64_t sum = 0;
    for (const StreamTimes& round : rounds) sum += round.answered;
    return sum;
  }
  int64_t failed() const {
    int64_t sum = 0;
    for (const StreamTimes& round : rounds) sum += round.failed;
    return sum;
  }
};

// What one measurement took of the gateway's processor.
struct Worked {
  StreamTimes times;
  double cpu_s = 0;

  double per_cpu_second(int64_t count) const {
    return cpu_s > 0 ? static_cast<double>(count) / cpu_s : 0;
  }
};

struct Figures {
  std::vector<Way> ways;  // direct, gateway, then others
  Worked requests;
  Worked streams;
  StreamTimes moved;
  int64_t streams_of_the_sink = 0;  // that was closed
};

struct Plan {
  StreamQuestion question;
  double rate = 0;
  std::chrono::duration<double> time{0};
  int runs = 0;
  int concurrency = 0;
  int streams = 0;
  int stream_tokens = 0;
  std::chrono::milliseconds token_interval{0};
  std::string tokenizer;  // of the gateway's pool; empty: by load only
  int direct_port = 0;
  std::vector<std::string> beside;
};

Result<Plan> read_plan(const cli::Arguments& arguments) {
  Plan plan;
  plan.question.prompt_bytes = static_cast<size_t>(arguments.integer("--prompt-size"));
  plan.question.distinct = arguments.has("--distinct-prompts");
  plan.rate = arguments.number("--request-rate");
  plan.time = std::chrono::duration<double>(arguments.number("--duration"));
  plan.runs = static_cast<int>(arguments.integer("--runs"));
  plan.concurrency = static_cast<int>(arguments.integer("--max-concurrency"));
  plan.streams = static_cast<int>(arguments.integer("--streams"));
  plan.stream_tokens = static_cast<int>(arguments.integer("--output-len"));
  plan.token_interval = std::chrono::milliseconds(arguments.integer("--token-interval"));
  plan.direct_port = static_cast<int>(arguments.integer("--direct-port"));
  if (arguments.has("--beside")) plan.beside = arguments.list("--beside");
  for (const std::string& url : plan.beside) {
    if (!net::make_http_call("POST", url).ok()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("--beside '{}' is no http:// URL", url),
                   "beside"};
    }
  }
  if (!arguments.has("--tokenizer")) return plan;
  std::error_code failed;
  plan.tokenizer = std::filesystem::absolute(arguments.text("--tokenizer"), failed).string();
  if (failed || !std::filesystem::exists(plan.tokenizer, failed)) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("--tokenizer {}: no such model folder or file", arguments.text("--tokenizer")),
        "tokenizer"};
  }
  return plan;
}

std::string config_text(const Plan& plan, const std::string& key_file,
                        const std::vector<std::unique_ptr<bench::FrameSink>>& sinks) {
  std::string text = fmt::format(
      "[gateway]\nlisten = \"127.0.0.1:0\"\nfleet_key_file = \"{}\"\n\n[[pool]]\nname = \"bench\"\n"
      "model = \"bench\"\n",
      key_file);
  if (!plan.tokenizer.empty()) text += fmt::format("tokenizer = \"{}\"\n", plan.tokenizer);
  for (const auto& sink : sinks) {
    text += fmt::format("\n[[worker]]\npool = \"bench\"\nurl = \"http://127.0.0.1:{}\"\n",
                        sink->fleet_port());
  }
  return text;
}

// The sinks, the gateway before them, and the client.
class Rig {
 public:
  static Result<std::unique_ptr<Rig>> make(const Plan& plan, const cli::Interrupt& interrupt,
                                           base::Log& log) {
    TRY_ASSIGN(WorkFolder folder, WorkFolder::make("pelton-gateway"));
    std::unique_ptr<Rig> rig(new Rig(plan, interrupt, std::move(folder)));
    TRY(rig->open(log));
    return rig;
  }

  Result<Figures> measure() {
    Figures figures;
    TRY(add_ways(figures.ways));
    load_->at_rate(figures.ways[1].call, plan_.question, plan_.rate, plan_.time / 4);  // warms it
    for (int round = 0; round < plan_.runs; ++round) {
      for (Way& way : figures.ways) {
        way.rounds.push_back(load_->at_rate(way.call, plan_.question, plan_.rate, plan_.time));
        TRY(go_on());
      }
    }
    const net::HttpCall& call = figures.ways[1].call;
    StreamQuestion whole = plan_.question;
    whole.streamed = false;
    TRY_ASSIGN(figures.requests,
               worked([&] { return load_->closed(call, whole, plan_.concurrency, plan_.time); }));
    StreamQuestion stream = plan_.question;
    stream.tokens = plan_.stream_tokens;
    TRY_ASSIGN(figures.streams,
               worked([&] { return load_->together(call, stream, plan_.streams, {}); }));
    // As a worker that is killed: its streams go on at the other one.
    figures.moved = load_->together(call, stream, plan_.streams, [&] {
      figures.streams_of_the_sink = sinks_[0]->open_streams();
      sinks_[0]->close();
    });
    TRY(go_on());
    return figures;
  }

  bool apart() const { return processors_.apart(); }

 private:
  Rig(const Plan& plan, const cli::Interrupt& interrupt, WorkFolder folder)
      : plan_(plan), interrupt_(interrupt), folder_(std::move(folder)) {}

  Result<void> open(base::Log& log) {
    processors_.take_others();
    const std::string key_file = folder_.file("fleet.key");
    TRY(cluster::FleetKey::create(key_file));
    TRY_ASSIGN(const cluster::FleetKey key, cluster::FleetKey::read(key_file));
    for (int i = 0; i < kSinks; ++i) {
      sinks_.push_back(std::make_unique<bench::FrameSink>(log));
      TRY(sinks_.back()->open({.number = i,
                               .keys = key.derive(cluster::kConnectionLabel),
                               .block_seed = cluster::block_seed(key),
                               // The first one is closed amid a measurement.
                               .direct_port = i + 1 == kSinks ? plan_.direct_port : 0,
                               .token_interval = plan_.token_interval}));
    }
    load_.emplace([this] { return interrupt_.pending(); });
    const std::string config = folder_.file("gateway.toml");
    TRY(base::write_file(config, config_text(plan_, key_file, sinks_)));
    processors_.take_first();
    Result<OwnServer> started =
        OwnServer::start({"gateway", "--config", config, "--log-level", "error"}, interrupt_);
    processors_.take_others();
    if (!started.ok()) return std::move(started).error();
    gateway_.emplace(std::move(*started));
    return wait_until_ready();
  }

  Result<void> go_on() const {
    if (interrupt_.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
    return {};
  }

  Result<void> wait_until_ready() {
    for (int i = 0; i < kReadyTries; ++i) {
      TRY(go_on());
      TRY_ASSIGN(const net::HttpCall call, net::make_http_call("GET", gateway_->url() + "/ready"));
      const Result<net::HttpResponse> answer = net::http_fetch(call);
      const bool all_seen =
          std::ranges::all_of(sinks_, [](const auto& sink) { return sink->is_seen(); });
      if (all_seen && answer.ok() && answer->status == 200) return {};
      ::usleep(100'000);
    }
    return Error{ErrorCode::kUnavailable, "the gateway has not become ready in 30 seconds", {}};
  }

  Result<void> add_ways(std::vector<Way>& ways) {
    const auto add = [&](std::string name, const std::string& url) -> Result<void> {
      TRY_ASSIGN(net::HttpCall call, net::make_http_call("POST", url));
      call.repeatable = true;
      ways.push_back({.name = std::move(name), .call = std::move(call), .rounds = {}});
      return {};
    };
    TRY(add("direct", fmt::format("http://127.0.0.1:{}", sinks_.back()->direct_port())));
    TRY(add("gateway", gateway_->url()));
    for (const std::string& url : plan_.beside) TRY(add(url, url));
    return {};
  }

  template <typename Measurement>
  Result<Worked> worked(const Measurement& measurement) {
    Worked worked;
    TRY_ASSIGN(const double before, gateway_->cpu_seconds());
    worked.times = measurement();
    TRY_ASSIGN(const double after, gateway_->cpu_seconds());
    worked.cpu_s = after - before;
    TRY(go_on());
    return worked;
  }

  const Plan& plan_;
  const cli::Interrupt& interrupt_;
  const Processors processors_;
  const WorkFolder folder_;
  std::vector<std::unique_ptr<bench::FrameSink>> sinks_;
  std::optional<OwnServer> gateway_;
  std::optional<bench::StreamLoad> load_;
};

constexpr std::array kShares = {0.5, 0.99, 0.999};
constexpr std::array kShareNames = {"p50_ms", "p99_ms", "p999_ms"};

std::string to_text(const Plan& plan, const Figures& figures, bool apart) {
  std::string out = fmt::format(
      "first byte, {} requests/s, prompts of {}, median of {} rounds (ms)\n{:<32} {:>9} {:>9} "
      "{:>9} {:>9} {:>7}\n",
      plan.rate, cli::format_bytes(static_cast<double>(plan.question.prompt_bytes)), plan.runs, "",
      "p50", "p99", "p99.9", "answers", "failed");
  const Way& direct = figures.ways[0];
  const auto line = [&](const std::string& name, const Way& way, const Way* less) {
    out += fmt::format("{:<32}", name);
    for (const double share : kShares) {
      const double beside = less == nullptr ? 0 : less->first_byte_ms(share);
      out += fmt::format(" {:>9.3f}", way.first_byte_ms(share) - beside);
    }
    if (less == nullptr) out += fmt::format(" {:>9} {:>7}", way.answered(), way.failed());
    out += '\n';
  };
  for (const Way& way : figures.ways) line(way.name, way, nullptr);
  for (size_t i = 1; i < figures.ways.size(); ++i) {
    line("added by " + figures.ways[i].name, figures.ways[i], &direct);
  }
  const Worked& requests = figures.requests;
  out += fmt::format(
      "unstreamed, {} at once: {:.0f} requests/s; {:.0f} per CPU second; {} answers, {} failed\n",
      plan.concurrency, static_cast<double>(requests.times.answered) / requests.times.seconds,
      requests.per_cpu_second(requests.times.answered), requests.times.answered,
      requests.times.failed);
  const Worked& streams = figures.streams;
  out += fmt::format(
      "{} streams, a token each {} ms: {} token frames in {:.2f} s; {:.0f} per CPU second; {} "
      "failed\n",
      plan.streams, plan.token_interval.count(), streams.times.tokens, streams.times.seconds,
      streams.per_cpu_second(streams.times.tokens), streams.times.failed);
  const StreamTimes& moved = figures.moved;
  out += fmt::format(
      "a sink is killed under {} streams, {} of them its own: {} went on at the other one; gap p50 "
      "{:.1f} ms, longest {:.1f} ms; {} answers whole, {} failed\n",
      plan.streams, figures.streams_of_the_sink, moved.move_gap_ms.size(),
      percentile(moved.move_gap_ms, 0.5), percentile(moved.move_gap_ms, 1), moved.answered,
      moved.failed);
  if (!apart) out += "one processor for all: gateway, sinks and client took it from each other\n";
  return out;
}

void add_shares(base::JsonWriter& w, const Way& way, const Way* less) {
  for (size_t i = 0; i < kShares.size(); ++i) {
    const double beside = less == nullptr ? 0 : less->first_byte_ms(kShares[i]);
    w.key(kShareNames[i]).number(way.first_byte_ms(kShares[i]) - beside);
  }
}

void add_ways(base::JsonWriter& w, const std::vector<Way>& ways) {
  w.key("first_byte").begin_array();
  for (const Way& way : ways) {
    w.begin_object().key("way").string(way.name);
    add_shares(w, way, nullptr);
    w.key("answered").integer(way.answered()).key("failed").integer(way.failed()).end_object();
  }
  w.end_array().key("added").begin_array();
  for (size_t i = 1; i < ways.size(); ++i) {
    w.begin_object().key("way").string(ways[i].name);
    add_shares(w, ways[i], &ways[0]);
    w.end_object();
  }
  w.end_array();
}

std::string to_json(const Plan& plan, const Figures& figures, bool apart) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object();
  w.key("request_rate").number(plan.rate);
  w.key("prompt_bytes").integer(static_cast<int64_t>(plan.question.prompt_bytes));
  w.key("runs").integer(plan.runs);
  w.key("own_processor").boolean(apart);
  add_ways(w, figures.ways);
  const Worked& requests = figures.requests;
  w.key("requests").begin_object();
  w.key("concurrency").integer(plan.concurrency).key("seconds").number(requests.times.seconds);
  w.key("answered").integer(requests.times.answered).key("failed").integer(requests.times.failed);
  w.key("cpu_seconds").number(requests.cpu_s).end_object();
  const Worked& streams = figures.streams;
  w.key("streams").begin_object();
  w.key("count").integer(plan.streams).key("seconds").number(streams.times.seconds);
  w.key("answered").integer(streams.times.answered).key("failed").integer(streams.times.failed);
  w.key("token_frames").integer(streams.times.tokens);
  w.key("cpu_seconds").number(streams.cpu_s).end_object();
  const StreamTimes& moved = figures.moved;
  w.key("moved").begin_object();
  w.key("of_the_killed").integer(figures.streams_of_the_sink);
  w.key("count").integer(static_cast<int64_t>(moved.move_gap_ms.size()));
  w.key("gap_p50_ms").number(percentile(moved.move_gap_ms, 0.5));
  w.key("gap_max_ms").number(percentile(moved.move_gap_ms, 1));
  w.key("answered").integer(moved.answered).key("failed").integer(moved.failed).end_object();
  w.end_object();
  out += '\n';
  return out;
}

Result<void> run_bench_gateway(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Plan plan, read_plan(arguments));
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kError});
  TRY_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(plan, interrupt, log));
  TRY_ASSIGN(const Figures figures, rig->measure());
  if (arguments.has("--json")) {
    const std::string json = to_json(plan, figures, rig->apart());
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(plan, figures, rig->apart()));
}

}  // namespace

cli::Verb bench_gateway_verb() {
  Flag size = count_flag("--prompt-size", "BYTES", "of each prompt", "8KiB", 1, 16 << 20);
  Flag port = count_flag("--direct-port", "N",
                         "where the sink answers without a gateway, for proxies that are measured "
                         "beside it; 0: any free port",
                         "0", 0, 65535);
  port.kind = Flag::Kind::kInteger;
  Flag beside = text_flag("--beside", "URL",
                          "measure this proxy's first byte as well: one before --direct-port");
  beside.many = true;
  Flag json = text_flag("--json", "FILE", "also write the numbers; - is stdout");
  return {
      .name = "bench gateway",
      .summary = "Measures what a gateway adds, before workers that compute nothing.",
      .about =
          "Starts pelton gateway on a processor of its own, and beside it two sinks that speak a\n"
          "worker's frames over a fleet key, and a client. Measures by turns the first byte\n"
          "straight from a sink and through the gateway; then unstreamed requests a second, token\n"
          "frames relayed per second of the gateway's processor, and the gap in streams whose "
          "sink\n"
          "is killed. Every answer is checked to the token.",
      .flags = {number_flag("--request-rate", "R", "requests a second while first bytes are timed",
                            "1000", 0.1, 1e6),
                std::move(size), switch_flag("--distinct-prompts", "no two prompts begin alike"),
                number_flag("--duration", "S", "of each measurement, in seconds", "5", 0.05, 3600),
                count_flag("--runs", "R", "rounds of first bytes", "3", 1, 1000),
                count_flag("--max-concurrency", "N", "unstreamed requests at once", "64", 1, 4096),
                count_flag("--streams", "N", "streams at once", "256", 1, 8192),
                count_flag("--output-len", "N", "tokens of a stream", "200", 2, 1e6),
                count_flag("--token-interval", "MS", "between two tokens of a stream", "10", 0,
                           1e4),
                text_flag("--tokenizer", "MODEL",
                          "a model's folder, by which the gateway names prompts' blocks; default: "
                          "it goes by load alone"),
                std::move(port), std::move(beside), std::move(json)},
      .examples = {"pelton bench gateway",
                   "pelton bench gateway --tokenizer ./model --prompt-size 220KiB --json -",
                   "pelton bench gateway --direct-port 9900 --beside http://127.0.0.1:9901"},
      .run = run_bench_gateway,
  };
}

}  // namespace pelton::apps

// pelton bench kv: how fast one worker of a fleet fetches keys and values from another one. It asks
// as a gateway does: a prompt of random tokens is computed by the one, then fetched by the other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/authenticated_cipher.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "cli/interrupt.h"
#include "cluster/block_names.h"
#include "cluster/envelope.h"
#include "cluster/fleet_key.h"
#include "cluster/frame.h"
#include "gateway/block_view.h"
#include "kv_transfer/peer_ticket.h"
#include "net/http_client.h"
#include "net/tls_trust.h"

namespace pelton::apps {
namespace {

using Clock = std::chrono::steady_clock;
using cli::Flag;

constexpr std::chrono::milliseconds kAnswerMax{600'000};
constexpr std::chrono::milliseconds kRecordMax{5'000};
// Ids that every vocabulary has, none of them a control token's.
constexpr uint64_t kFirstToken = 300;
constexpr uint64_t kTokens = 600;

int64_t unix_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// One side, as its fleet port shows it.
struct Side {
  net::HttpCall call;  // without target and body
  cluster::WorkerRecord record;
};

// What the receiver has counted so far.
struct Counted {
  double bytes = 0;
  double seconds = 0;
  double blocks = 0;
};

struct Run {
  double bytes = 0;
  double rate = 0;     // bytes a second, while they came
  double ready_s = 0;  // from the request to its end, all of it being there
};

struct Bench {
  cluster::FleetKey key;
  Side from;
  Side to;
  int blocks = 0;
};

Result<cluster::WorkerRecord> read_record(net::HttpCall call) {
  call.target = "/fleet/v1/watch";
  call.whole_time_max = kRecordMax;
  net::HttpClient client({});
  std::optional<Result<cluster::WorkerRecord>> record;
  std::atomic<bool> over{false};
  cluster::FrameReader reader;
  net::HttpCallEvents events;
  events.on_body = [&](std::string_view bytes) {
    if (record) return;
    reader.push(bytes);
    const auto frame = reader.next();
    if (!frame.ok()) record = Result<cluster::WorkerRecord>(frame.error());
    if (!frame.ok() || !*frame) return;
    if ((*frame)->type == cluster::FrameType::kRecord) {
      record = cluster::decode_worker_record((*frame)->payload);
      over = true;
      over.notify_all();
    }
  };
  Result<void> done;
  events.on_done = [&](Result<void> result) {
    done = std::move(result);
    over = true;
    over.notify_all();
  };
  const net::HttpClient::CallId id = client.start(call, std::move(events));
  over.wait(false);
  client.cancel(id);
  if (record) return *std::move(record);
  if (!done.ok()) return done.error();
  return Error{ErrorCode::kIo,
               fmt::format("{}:{} is no worker's fleet port", call.host, call.port)};
}

Result<Side> read_side(const cli::Arguments& arguments, std::string_view flag,
                       const cluster::FleetKey& key) {
  const std::string url = arguments.text(flag);
  Side side;
  TRY_ASSIGN(side.call, net::make_http_call("GET", url));
  side.call.tls = true;
  side.call.trust = net::TlsTrust::of_shared_keys(key.derive(cluster::kConnectionLabel));
  Result<cluster::WorkerRecord> record = read_record(side.call);
  if (!record.ok()) {
    return Error{record.error().code, fmt::format("{} {}: {}", flag, url, record.error().message)};
  }
  side.record = *std::move(record);
  const bool has_names =
      side.record.block_name ==
      cluster::block_name_check(cluster::block_seed(key), side.record.block_tokens);
  if (side.record.kv_port == 0 || !side.record.kv_ahead || side.record.models.empty() ||
      side.record.block_tokens == 0 || !has_names) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} {}: this worker does not exchange keys and values (--kv-port)", flag, url)};
  }
  return side;
}

Result<Bench> open(const cli::Arguments& arguments) {
  Bench bench;
  TRY_ASSIGN(bench.key, cluster::FleetKey::read(arguments.text("--fleet-key-file")));
  TRY_ASSIGN(bench.from, read_side(arguments, "--from", bench.key));
  TRY_ASSIGN(bench.to, read_side(arguments, "--to", bench.key));
  bench.blocks = static_cast<int>(arguments.integer("--blocks"));
  const cluster::WorkerRecord& from = bench.from.record;
  const cluster::WorkerRecord& to = bench.to.record;
  if (from.kv_id == to.kv_id) {
    return Error{ErrorCode::kInvalidArgument, "--from and --to are one worker", "to"};
  }
  if (from.block_tokens != to.block_tokens || from.models.front() != to.models.front()) {
    return Error{ErrorCode::kUnsupported, "--from and --to serve different models", "to"};
  }
  const int most = (std::min(from.context_tokens, to.context_tokens) - 2) / from.block_tokens;
  if (bench.blocks > most) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--blocks {}: at most {} fit into the model's context", bench.blocks, most),
        "blocks"};
  }
  return bench;
}

// The answer's status, once all of it has come.
Result<int> ask(const Side& side, const std::vector<TokenId>& prompt, const std::string& request_id,
                const cluster::RunEnvelope::Peer& peer) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("model").string(side.record.models.front()).key("prompt").begin_array();
  for (const TokenId token : prompt) w.integer(token);
  w.end_array().key("max_tokens").integer(1).key("temperature").integer(0).end_object();
  const cluster::RunEnvelope envelope{.incarnation = side.record.incarnation,
                                      .request_id = request_id,
                                      .gateway = "bench",
                                      .method = "POST",
                                      .path = "/v1/completions",
                                      .seed = 1,
                                      .created_ms = unix_ms(),
                                      .peer = peer};
  net::HttpCall call = side.call;
  call.method = "POST";
  call.target = "/fleet/v1/run";
  call.whole_time_max = kAnswerMax;
  cluster::append_frame(call.body, {.type = cluster::FrameType::kRun, .payload = encode(envelope)});
  cluster::append_frame(call.body, {.type = cluster::FrameType::kBody, .payload = body});
  TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(std::move(call)));
  if (answer.status != 200) return answer.status;
  cluster::FrameReader reader;
  reader.push(answer.body);
  for (;;) {
    TRY_ASSIGN(const std::optional<cluster::Frame> frame, reader.next());
    if (!frame) return Error{ErrorCode::kIo, "an answer without a head"};
    if (frame->type != cluster::FrameType::kHead) continue;
    TRY_ASSIGN(const cluster::AnswerHead head, cluster::decode_answer_head(frame->payload));
    return head.status;
  }
}

// Of all engines, the samples of this family that have the label.
double sum_of(std::string_view page, std::string_view family, std::string_view label) {
  double sum = 0;
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    const std::string_view line = page.substr(at, end - at);
    at = end + 1;
    const bool is_one = line.starts_with(family) && line.substr(family.size()).starts_with('{') &&
                        line.find(label) != std::string_view::npos;
    if (is_one) sum += std::strtod(std::string(line.substr(line.rfind(' ') + 1)).c_str(), nullptr);
  }
  return sum;
}

Result<Counted> count(const Side& side) {
  net::HttpCall call = side.call;
  call.target = "/fleet/v1/metrics";
  call.whole_time_max = kRecordMax;
  TRY_ASSIGN(const net::HttpResponse page, net::http_fetch(std::move(call)));
  constexpr std::string_view kFetched = "kind=\"fetched\"";
  return Counted{.bytes = sum_of(page.body, "pelton_kv_peer_bytes_total", kFetched),
                 .seconds = sum_of(page.body, "pelton_kv_peer_fetch_seconds_total", ""),
                 .blocks = sum_of(page.body, "pelton_kv_peer_blocks_total", kFetched)};
}

// What the worker shows may be a moment old.
Result<Counted> count_more(const Side& side, const Counted& before) {
  constexpr int kLooks = 40;
  constexpr std::chrono::milliseconds kBetween{25};
  Counted counted = before;
  for (int i = 0; i < kLooks && counted.blocks == before.blocks; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetween);
    TRY_ASSIGN(counted, count(side));
  }
  return counted;
}

Result<void> expect_answer(Result<int> status, std::string_view flag) {
  if (!status.ok()) return status.error();
  if (*status == 200) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: the worker answers with status {}", flag, *status)};
}

Result<Run> run_once(const Bench& bench, uint64_t number) {
  const int block_tokens = bench.from.record.block_tokens;
  std::vector<TokenId> prompt;
  for (int i = 0; i <= bench.blocks * block_tokens; ++i) {
    prompt.push_back(static_cast<TokenId>(
        kFirstToken + base::random_bits(number, static_cast<uint64_t>(i)) % kTokens));
  }
  const std::vector<kv::BlockHash> names = gateway::block_names(
      kv::BlockHasher(cluster::block_seed(bench.key)), {}, prompt, block_tokens);
  const std::string id = fmt::format("bench-kv-{:016x}", number);
  TRY(expect_answer(ask(bench.from, prompt, id, {}), "--from"));
  TRY_ASSIGN(const Counted before, count(bench.to));
  const kv_transfer::PeerTicket ticket{.source = bench.from.record.kv_id,
                                       .target = bench.to.record.kv_id,
                                       .grant = kv_transfer::grant_of(names),
                                       .request_id = id,
                                       .expires_ms = unix_ms() + kv_transfer::PeerTicket::kLifeMs,
                                       .nonce = base::random_bytes(16)};
  const std::string key = bench.key.derive(kv_transfer::kPeerLabel).front();
  const Clock::time_point begun = Clock::now();
  TRY(expect_answer(ask(bench.to, prompt, id,
                        {.host = bench.from.call.host,
                         .port = bench.from.record.kv_port,
                         .tokens = bench.blocks * block_tokens,
                         .ticket = ticket.seal(key),
                         .ahead = true}),
                    "--to"));
  const std::chrono::duration<double> ready = Clock::now() - begun;
  TRY_ASSIGN(const Counted after, count_more(bench.to, before));
  if (after.blocks == before.blocks) {
    return Error{ErrorCode::kIo,
                 "--to has fetched nothing: its log says why, or its host memory has no room "
                 "(--swap-space)"};
  }
  const double bytes = after.bytes - before.bytes;
  return Run{.bytes = bytes,
             .rate = bytes / std::max(after.seconds - before.seconds, 1e-9),
             .ready_s = ready.count()};
}

struct Percentiles {
  double low = 0;
  double middle = 0;
  double high = 0;
};
Percentiles percentiles_of(const std::vector<Run>& runs, double Run::*what) {
  std::vector<double> all;
  for (const Run& run : runs) all.push_back(run.*what);
  std::ranges::sort(all);
  return {.low = all.front(), .middle = all[all.size() / 2], .high = all.back()};
}

std::string to_text(const Bench& bench, const std::vector<Run>& runs) {
  const Percentiles rate = percentiles_of(runs, &Run::rate);
  const Percentiles ready = percentiles_of(runs, &Run::ready_s);
  std::string out = fmt::format(
      "{} blocks of {} tokens, {} bytes, {} runs: median, lowest, highest\n", bench.blocks,
      bench.from.record.block_tokens, static_cast<int64_t>(runs.front().bytes), runs.size());
  constexpr double kGiga = 1e9;
  constexpr double kMilli = 1e3;
  out += fmt::format("transfer    {:8.3f} GB/s {:8.3f} {:8.3f}\n", rate.middle / kGiga,
                     rate.low / kGiga, rate.high / kGiga);
  out += fmt::format("all there   {:8.2f} ms   {:8.2f} {:8.2f}\n", ready.middle * kMilli,
                     ready.low * kMilli, ready.high * kMilli);
  return out;
}

std::string to_json(const Bench& bench, const std::vector<Run>& runs) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("blocks").integer(bench.blocks);
  w.key("block_tokens").integer(bench.from.record.block_tokens).key("runs").begin_array();
  for (const Run& run : runs) {
    w.begin_object().key("bytes").integer(static_cast<int64_t>(run.bytes));
    w.key("bytes_per_second")
        .number(run.rate)
        .key("ready_seconds")
        .number(run.ready_s)
        .end_object();
  }
  w.end_array().end_object();
  out += '\n';
  return out;
}

Result<void> run_bench_kv(const cli::Arguments& arguments) {
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  TRY_ASSIGN(const Bench bench, open(arguments));
  const std::string drawn = base::random_bytes(8);
  uint64_t seed = 0;
  for (const char byte : drawn) seed = seed << 8 | static_cast<unsigned char>(byte);
  std::vector<Run> runs;
  // The first one connects.
  for (int64_t i = 0; i <= arguments.integer("--runs"); ++i) {
    if (interrupt.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
    TRY_ASSIGN(const Run one, run_once(bench, seed + static_cast<uint64_t>(i)));
    if (i > 0) runs.push_back(one);
  }
  if (arguments.has("--json")) {
    const std::string json = to_json(bench, runs);
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(bench, runs));
}

Flag url_flag(std::string name, std::string help) {
  return {.name = std::move(name), .value = "URL", .help = std::move(help), .required = true};
}

}  // namespace

cli::Verb bench_kv_verb() {
  return {
      .name = "bench kv",
      .summary = "Measures how fast one worker fetches keys and values from another.",
      .about =
          "Asks two running workers of a fleet as their gateway would: the one computes a prompt\n"
          "of random tokens, the other one fetches its blocks and computes nothing. Transfer is\n"
          "from the first byte to the last, sealed and summed as always; all there is from the\n"
          "request to its end. The workers need --kv-port, and --to host memory (--swap-space).",
      .flags = {url_flag("--from", "the fleet port of the worker that has the blocks"),
                url_flag("--to", "the fleet port of the worker that fetches them"),
                {.name = "--fleet-key-file",
                 .value = "FILE",
                 .help = "the fleet's key",
                 .required = true},
                {.name = "--blocks",
                 .value = "N",
                 .help = "that the prompt has",
                 .kind = Flag::Kind::kSize,
                 .default_text = "64",
                 .least = 2,
                 .most = 65536},
                {.name = "--runs",
                 .value = "R",
                 .help = "prompts, after one that connects",
                 .kind = Flag::Kind::kSize,
                 .default_text = "5",
                 .least = 1,
                 .most = 1000},
                {.name = "--json", .value = "FILE", .help = "also write the numbers; - is stdout"}},
      .examples = {"pelton bench kv --from http://127.0.0.1:9101 --to http://127.0.0.1:9102 "
                   "--fleet-key-file fleet.key --blocks 40"},
      .run = run_bench_kv,
  };
}

}  // namespace pelton::apps

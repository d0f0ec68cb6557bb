#include "bench/frame_sink.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "cluster/block_names.h"
#include "cluster/envelope.h"
#include "cluster/frame.h"
#include "cluster/token_list.h"
#include "net/tls_identity.h"

namespace pelton::bench {
namespace {

using cluster::append_frame;
using cluster::Frame;
using cluster::FrameType;
using std::chrono::milliseconds;
using Moment = std::chrono::steady_clock::time_point;

constexpr milliseconds kReportTime{100};
constexpr int kBlockTokens = 16;
constexpr int kTokensMax = 1 << 20;  // of one answer

// Of a request, as far as a sink reads it.
struct Asked {
  std::string_view body;
  uint32_t said = 0;  // tokens that it came with

  bool streamed() const { return body.find("\"stream\":true") != std::string_view::npos; }
  uint32_t tokens() const {
    constexpr std::string_view kName = "\"max_tokens\":";
    const size_t at = body.find(kName);
    uint32_t count = 1;
    if (at != std::string_view::npos) {
      const char* begin = body.data() + at + kName.size();
      std::from_chars(begin, body.data() + body.size(), count);
    }
    return std::clamp<uint32_t>(count, 1, kTokensMax);
  }
};

struct Run {
  cluster::RunEnvelope envelope;
  Asked asked;  // lives as long as what it was read of
};

Result<Run> read_run(cluster::FrameReader& reader) {
  Run run;
  for (;;) {
    TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
    if (!frame) return run;
    if (frame->type == FrameType::kRun) {
      TRY_ASSIGN(run.envelope, cluster::decode_run_envelope(frame->payload));
    } else if (frame->type == FrameType::kTokens) {
      TRY_ASSIGN(const cluster::TokenList list, cluster::decode_token_list(frame->payload));
      run.asked.said = list.first + static_cast<uint32_t>(list.tokens.size());
    } else if (frame->type == FrameType::kBody) {
      run.asked.body = frame->payload;
    }
  }
}

std::string random_incarnation() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

net::HttpHeaders typed(std::string_view type) {
  net::HttpHeaders headers;
  headers.add("Content-Type", std::string(type));
  return headers;
}

void add(std::string& out, FrameType type, std::string_view payload, uint8_t flags = 0) {
  append_frame(out, {.type = type, .flags = flags, .payload = payload});
}

std::string head_of(std::string_view type, bool streamed) {
  std::string frames;
  add(frames, FrameType::kHead,
      encode(cluster::AnswerHead{
          .status = 200, .headers = {{"Content-Type", std::string(type)}}, .streamed = streamed}),
      Frame::kMore);
  return frames;
}

}  // namespace

// One answer. Whatever it waits for holds it, on the exchange's net thread.
class FrameSink::Answer : public std::enable_shared_from_this<Answer> {
 public:
  enum class Wire { kFrames, kPlain };

  Answer(FrameSink& sink, std::shared_ptr<net::Exchange> exchange, Wire wire, const Asked& asked)
      : sink_(sink),
        exchange_(std::move(exchange)),
        is_framed_(wire == Wire::kFrames),
        next_(asked.said),
        tokens_(asked.tokens()),
        id_(fmt::format("chatcmpl-{}-{}", sink.options_.number, sink.answers_++)) {}

  void send_whole() {
    const std::string body = fmt::format(
        R"({{"id":"{}","object":"chat.completion","created":1,"model":"{}","choices":[{{"index":0,)"
        R"("message":{{"role":"assistant","content":"{}"}},"finish_reason":"stop"}}],)"
        R"("usage":{{"prompt_tokens":1,"completion_tokens":{},"total_tokens":{}}}}})",
        id_, sink_.options_.model, word(0), tokens_, tokens_ + 1);
    send_body(body);
  }

  // A whole body, of JSON.
  void send_body(const std::string& body) {
    if (!is_framed_) {
      return exchange_->send({.status = 200, .headers = typed("application/json"), .body = body});
    }
    std::string frames = head_of("application/json", false);
    add(frames, FrameType::kBytes, body, Frame::kLast);
    exchange_->start_stream(200, typed("application/x-pelton-frames"));
    exchange_->write(frames);
    exchange_->finish();
  }

  void begin_stream() {
    if (is_framed_) {
      ++sink_.open_streams_;
      is_counted_ = true;
    }
    began_ = std::chrono::steady_clock::now();
    exchange_->start_stream(
        200, typed(is_framed_ ? "application/x-pelton-frames" : "text/event-stream"));
    std::string out;
    if (is_framed_) out = head_of("text/event-stream", true);
    say_token(std::move(out));
  }

  ~Answer() {
    if (is_counted_) --sink_.open_streams_;
  }

 private:
  std::string word(uint32_t token) const {
    return fmt::format("{}.{} ", token, sink_.options_.number);
  }

  void say_token(std::string out) {
    if (exchange_->closed()) return;
    const bool is_last = next_ + 1 >= tokens_;
    std::string bytes = fmt::format(
        R"(data: {{"id":"{}","object":"chat.completion.chunk","created":1,"model":"{}",)"
        R"("choices":[{{"index":0,"delta":{{"content":"{}"}},"finish_reason":{}}}]}})"
        "\n\n",
        id_, sink_.options_.model, word(next_), is_last ? "\"length\"" : "null");
    if (is_last) bytes += "data: [DONE]\n\n";
    if (is_framed_) {
      add(out, FrameType::kTokens,
          encode(cluster::TokenList{.first = next_,
                                    .with_logprobs = false,
                                    .tokens = {{.token = 100, .logprob = 0, .top = {}}}}),
          Frame::kMore);
      if (is_last) {
        add(out, FrameType::kFinished,
            encode(cluster::ChoiceEnd{.reason = "length",
                                      .prompt_tokens = 1,
                                      .cached_tokens = 0,
                                      .output_tokens = static_cast<int>(tokens_)}),
            Frame::kMore);
      }
      add(out, FrameType::kBytes, bytes, is_last ? Frame::kLast : uint8_t{0});
    } else {
      out += bytes;
    }
    exchange_->write(out);
    ++next_;
    ++emitted_;
    if (is_last) return exchange_->finish();
    // Each is due by the first one's time, so that late timers do not add up.
    const Moment due = began_ + emitted_ * sink_.options_.token_interval;
    const auto left =
        std::chrono::duration_cast<milliseconds>(due - std::chrono::steady_clock::now());
    exchange_->post_after(std::max(left, milliseconds(0)),
                          [self = shared_from_this()] { self->say_token({}); });
  }

  FrameSink& sink_;
  const std::shared_ptr<net::Exchange> exchange_;
  const bool is_framed_;
  bool is_counted_ = false;
  uint32_t next_;
  const uint32_t tokens_;
  int emitted_ = 0;
  const std::string id_;
  Moment began_;
};

// The gateway's watch: a record, then loads.
class FrameSink::Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(FrameSink& sink, std::shared_ptr<net::Exchange> exchange)
      : sink_(sink), exchange_(std::move(exchange)) {}

  void begin() {
    exchange_->start_stream(200, typed("application/x-pelton-frames"));
    std::string frames;
    add(frames, FrameType::kRecord,
        encode(cluster::WorkerRecord{
            .name = fmt::format("sink-{}", sink_.options_.number),
            .incarnation = sink_.incarnation_,
            .models = {sink_.options_.model},
            .slots = 1 << 16,
            .batch_tokens = 8192,
            .context_tokens = 1 << 20,
            .version = "sink",
            .zone = {},
            .block_tokens = kBlockTokens,
            .windows = {0},
            .block_name = cluster::block_name_check(sink_.options_.block_seed, kBlockTokens),
            .date = {},
            .adapters = {}}));
    exchange_->write(frames);
    report();
  }

 private:
  void report() {
    if (exchange_->closed()) return;
    std::string frames;
    add(frames, FrameType::kLoad,
        encode(cluster::WorkerLoad{.progress = ++progress_,
                                   .running = static_cast<int>(sink_.open_streams_.load()),
                                   .dispatch = sink_.dispatch_}));
    exchange_->write(frames);
    exchange_->post_after(kReportTime, [self = shared_from_this()] { self->report(); });
  }

  FrameSink& sink_;
  const std::shared_ptr<net::Exchange> exchange_;
  int64_t progress_ = 0;
};

Result<void> FrameSink::open(Options options) {
  options_ = std::move(options);
  incarnation_ = random_incarnation();
  net::HttpServer::Options http{
      .port = 0,
      .connections_max = 16'384,
      .tls = options_.keys.empty() ? nullptr : net::TlsIdentity::of_shared_keys(options_.keys)};
  fleet_ = std::make_unique<net::HttpServer>(
      http,
      [this](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
        handle_fleet(request, exchange);
      },
      log_);
  http.tls = nullptr;
  http.port = options_.direct_port;
  direct_ = std::make_unique<net::HttpServer>(
      http,
      [this](const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
        handle_direct(request, exchange);
      },
      log_);
  TRY(fleet_->start());
  return direct_->start();
}

void FrameSink::close() {
  if (fleet_ != nullptr) fleet_->stop(milliseconds(0));
  if (direct_ != nullptr) direct_->stop(milliseconds(0));
}

void FrameSink::handle_fleet(const net::HttpRequest& request,
                             const std::shared_ptr<net::Exchange>& exchange) {
  if (request.path == "/fleet/v1/watch") return std::make_shared<Watch>(*this, exchange)->begin();
  cluster::FrameReader reader;
  reader.push(request.body);
  const Result<Run> run = read_run(reader);
  if (!run.ok() || run->envelope.incarnation != incarnation_) {
    return exchange->send(
        {.status = run.ok() ? 409 : 400, .headers = typed("application/json"), .body = "{}"});
  }
  int64_t seen = dispatch_;
  while (seen < run->envelope.dispatch &&
         !dispatch_.compare_exchange_weak(seen, run->envelope.dispatch)) {
  }
  const auto answer = std::make_shared<Answer>(*this, exchange, Answer::Wire::kFrames, run->asked);
  if (run->envelope.method == "GET") {
    is_seen_ = true;
    return answer->send_body(
        fmt::format(R"({{"object":"list","data":[{{"id":"{}"}}]}})", options_.model));
  }
  if (run->asked.streamed()) return answer->begin_stream();
  answer->send_whole();
}

void FrameSink::handle_direct(const net::HttpRequest& request,
                              const std::shared_ptr<net::Exchange>& exchange) {
  const Asked asked{.body = request.body};
  const auto answer = std::make_shared<Answer>(*this, exchange, Answer::Wire::kPlain, asked);
  if (asked.streamed()) return answer->begin_stream();
  answer->send_whole();
}

}  // namespace pelton::bench

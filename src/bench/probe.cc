#include "bench/probe.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "bench/answer_reader.h"

namespace pelton::bench {
namespace {

constexpr std::chrono::milliseconds kPause{500};

bool is_refusal(int status) {
  return status == 400 || status == 422;
}

// Whether waiting may help: nobody listens yet, or the model is still being loaded.
bool may_come(int status) {
  return status == 0 || status == 404 || status == 429 || status >= 500;
}

}  // namespace

namespace {

constexpr size_t kAnswerBytesMax = size_t{16} << 20;
constexpr size_t kModelNameBytesMax = 512;

// Waits for a call no longer than patience says; what its callbacks touch is shared with them.
Result<void> wait_for(net::HttpCall call, net::HttpCallEvents events, const Patience& patience) {
  constexpr std::chrono::milliseconds kLook{20};
  call.body_bytes_max = kAnswerBytesMax;
  call.connect_time_max = std::min(call.connect_time_max, patience.time_max);
  call.head_time_max = call.quiet_time_max = patience.time_max;
  const std::string place = fmt::format("{}:{}{}", call.host, call.port, call.target);
  const auto done = std::make_shared<std::promise<Result<void>>>();
  events.on_done = [done](Result<void> result) { done->set_value(std::move(result)); };
  std::future<Result<void>> outcome = done->get_future();
  const auto until = std::chrono::steady_clock::now() + patience.time_max;
  net::HttpClient client({});
  const net::HttpClient::CallId id = client.start(std::move(call), std::move(events));
  while (outcome.wait_for(kLook) != std::future_status::ready) {
    const bool late = std::chrono::steady_clock::now() >= until;
    if (!late && !patience.stop) continue;
    client.cancel(id);
    outcome.wait();
    if (patience.stop) return Error{ErrorCode::kCancelled, "interrupted", {}};
    return Error{
        ErrorCode::kDeadline,
        fmt::format("{} did not end its answer within {} ms", place, patience.time_max.count()),
        {}};
  }
  return outcome.get();
}

// What helps against a refusal; empty: nothing that we know.
std::string_view advice(int status) {
  if (status == 401)
    return "; it wants a key: set OPENAI_API_KEY, or give --header Authorization='Bearer KEY'";
  if (status == 403) return "; this key may not: set another OPENAI_API_KEY";
  return "";
}

// What a server said, on a line of its own.
std::string said_by(std::string_view body) {
  AnswerFields fields;
  const bool told = read_answer_fields(body, fields).ok() && !fields.error.empty();
  return base::one_line(told ? std::string_view(fields.error) : body.substr(0, 200)).substr(0, 300);
}

Probed probed_of(Counts counts, const report::RequestRecord& record) {
  Probed probed{.counts = counts};
  if (record.pieces.empty()) {
    probed.first_token_s = static_cast<double>(record.end_ns) * 1e-9;
    return probed;
  }
  const int64_t first_ns = record.pieces.front().at_ns;
  probed.first_token_s = static_cast<double>(first_ns) * 1e-9;
  const int64_t behind = record.output_tokens - record.pieces.front().tokens;
  if (behind > 0) {
    probed.token_s = static_cast<double>(record.pieces.back().at_ns - first_ns) * 1e-9 /
                     static_cast<double>(behind);
  }
  return probed;
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kModelNameBytesMax && base::one_line(name) == name;
}

}  // namespace

Result<std::string> first_model(const Target& target, const Patience& patience) {
  net::HttpCall call = target.call;
  const size_t endpoint = call.target.rfind("/v1/");
  const std::string prefix =
      endpoint == std::string::npos ? std::string() : call.target.substr(0, endpoint);
  call.method = "GET";
  call.target = prefix + "/v1/models";
  const auto response = std::make_shared<net::HttpResponse>();
  net::HttpCallEvents events;
  events.on_head = [response](int status, const net::HttpHeaders&) { response->status = status; };
  events.on_body = [response](std::string_view bytes) { response->body += bytes; };
  TRY(wait_for(std::move(call), std::move(events), patience));
  const auto unusable = [&](const std::string& why) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} {}; --model names one", target.base_url, why), "model"};
  };
  const int status = response->status;
  if (!advice(status).empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: HTTP {}: {}{}", target.base_url, status, said_by(response->body),
                             advice(status)),
                 "model"};
  }
  const Result<Json> json = Json::parse(response->body);
  const Json* data = json.ok() ? json->find("data") : nullptr;
  if (status != 200 || data == nullptr || !data->is_array()) {
    return unusable(fmt::format("does not tell its models (HTTP {})", status));
  }
  if (data->as_array().empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} lists no model yet, so it may still be loading: ask again when "
                             "its /ready answers 200, or name the model with --model",
                             target.base_url),
                 "model"};
  }
  const std::optional<std::string> id = data->as_array().front().string("id");
  if (!id || !is_name(*id)) return unusable("lists a model whose name cannot be one");
  return *id;
}

Answered ask_once(const Target& target, std::string body, int asked_tokens,
                  const base::Clock& clock, const Patience& patience) {
  struct Ask {
    explicit Ask(int asked) : reader(record, AnswerLimits::for_asked(asked)) {}
    report::RequestRecord record;
    AnswerReader reader;
  };
  const auto ask = std::make_shared<Ask>(asked_tokens);
  const int64_t origin_ns = clock.now_ns();
  const auto now = [&clock, origin_ns] { return clock.now_ns() - origin_ns; };
  net::HttpCall call = target.call;
  call.body = std::move(body);
  net::HttpCallEvents events;
  events.on_head = [ask, now](int status, const net::HttpHeaders& headers) {
    ask->reader.head(status, headers, now());
  };
  events.on_body = [ask, now](std::string_view bytes) { ask->reader.bytes(bytes, now()); };
  const Result<void> result = wait_for(std::move(call), std::move(events), patience);
  ask->reader.end(result, now());
  return {.status = ask->reader.status(), .record = ask->record, .text = ask->reader.text()};
}

Result<Probed> probe(const Target& target, const QuestionOptions& question,
                     const workload::Conversation& conversation, const ProbeOptions& options,
                     const base::Clock& clock, const Patience& patience) {
  workload::Turn turn = conversation.turns.front();
  if (turn.output_tokens == 0 || turn.output_tokens > options.output_tokens_max) {
    turn.output_tokens = options.output_tokens_max;
  }
  const int64_t until_ns = clock.now_ns() + static_cast<int64_t>(options.ready_s * 1e9);
  QuestionOptions tried = question;
  while (!patience.stop) {
    const Answered answered =
        ask_once(target, question_body(target, tried, conversation, {}, turn, target.model),
                 turn.output_tokens, clock, patience);
    if (patience.stop) break;
    if (answered.record.ok) return probed_of(tried.counts, answered.record);
    if (is_refusal(answered.status) && tried.counts != Counts::kNever &&
        target.backend != Backend::kEmbeddings) {
      tried.counts = tried.counts == Counts::kEachPiece ? Counts::kAtEnd : Counts::kNever;
      continue;
    }
    if (!may_come(answered.status) || clock.now_ns() >= until_ns) {
      return Error{answered.status == 0 ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument,
                   fmt::format("{}{}: {}{}", target.base_url, target.call.target,
                               answered.record.error, advice(answered.status)),
                   {}};
    }
    std::this_thread::sleep_for(kPause);
  }
  return Error{ErrorCode::kCancelled, "interrupted", {}};
}

}  // namespace pelton::bench

#include "bench/probe.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "bench/answer_reader.h"

namespace pelton::bench {
namespace {

constexpr std::chrono::milliseconds kPause{500};

constexpr size_t kAnswerBytesMax = size_t{16} << 20;
constexpr size_t kModelNameBytesMax = 512;
constexpr int kOutputTokensMax = 8;  // of the question that is asked first

bool is_refusal(int status) {
  return status == 400 || status == 422;
}

// Whether waiting may help: nobody listens yet, or the model is still being loaded.
bool may_come(int status) {
  return status == 0 || status == 404 || status == 429 || status >= 500;
}

// A request that is refused is the user's to mend, anything else is the server's failure.
ErrorCode failure_code(int status) {
  const bool is_users = status >= 400 && status < 500 && status != 408 && status != 429;
  return is_users ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable;
}

// Between two questions to a server that is not ready.
Result<void> pause(const Patience& patience) {
  std::this_thread::sleep_for(kPause);
  if (patience.stop) return Error{ErrorCode::kCancelled, "interrupted", {}};
  return {};
}

// Waits for a call until it ends, it is interrupted or `give_up` has an error. What its callbacks
// touch is shared with them.
Result<void> wait_for(net::HttpCall call, net::HttpCallEvents events, const Patience& patience,
                      const std::function<std::optional<Error>()>& give_up) {
  constexpr std::chrono::milliseconds kLook{20};
  call.body_bytes_max = kAnswerBytesMax;
  call.connect_time_max = std::min(call.connect_time_max, patience.quiet_time_max);
  call.head_time_max = call.quiet_time_max = patience.quiet_time_max;
  const auto done = std::make_shared<std::promise<Result<void>>>();
  events.on_done = [done](Result<void> result) { done->set_value(std::move(result)); };
  std::future<Result<void>> outcome = done->get_future();
  net::HttpClient client({});
  const net::HttpClient::CallId id = client.start(std::move(call), std::move(events));
  while (outcome.wait_for(kLook) != std::future_status::ready) {
    const std::optional<Error> why = give_up();
    if (!why && !patience.stop) continue;
    client.cancel(id);
    outcome.wait();
    if (patience.stop) return Error{ErrorCode::kCancelled, "interrupted", {}};
    return *why;
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
  const bool has_error = read_answer_fields(body, fields).ok() && !fields.error.empty();
  return base::one_line(has_error ? std::string_view(fields.error) : body.substr(0, 200))
      .substr(0, 300);
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

struct ModelAnswer {
  Result<std::string> name;
  bool may_come = false;  // asked again later there may be one
};

ModelAnswer read_models(const Target& target, const net::HttpResponse& response) {
  const int status = response.status;
  const auto refused = [&](ErrorCode code, const std::string& why) {
    return Error{code, target.base_url + why, "model"};
  };
  if (!advice(status).empty()) {
    return {.name = refused(
                failure_code(status),
                fmt::format(": HTTP {}: {}{}", status, said_by(response.body), advice(status)))};
  }
  const Result<Json> json = Json::parse(response.body);
  const Json* data = json.ok() ? json->find("data") : nullptr;
  if (status != 200 || data == nullptr || !data->is_array()) {
    return {.name = refused(
                failure_code(status),
                fmt::format(" does not list its models (HTTP {}); --model names one", status)),
            .may_come = may_come(status)};
  }
  if (data->as_array().empty()) {
    return {.name = refused(ErrorCode::kUnavailable,
                            " lists no model yet, so it may still be loading: wait for it with "
                            "--ready-check-timeout-sec, or name the model with --model"),
            .may_come = true};
  }
  const std::optional<std::string> id = data->as_array().front().string("id");
  if (id && is_name(*id)) return {.name = *id};
  return {.name = refused(ErrorCode::kUnavailable,
                          " lists a model whose name cannot be one; --model names one")};
}

// GET of a path beside the endpoint; whole within the patience.
Result<net::HttpResponse> get(const Target& target, std::string_view path, std::string_view what,
                              const Patience& patience) {
  net::HttpCall call = target.call;
  const size_t endpoint = call.target.rfind("/v1/");
  const std::string prefix =
      endpoint == std::string::npos ? std::string() : call.target.substr(0, endpoint);
  call.method = "GET";
  call.target = prefix + std::string(path);
  const auto response = std::make_shared<net::HttpResponse>();
  net::HttpCallEvents events;
  events.on_head = [response](int status, const net::HttpHeaders&) { response->status = status; };
  events.on_body = [response](std::string_view bytes) { response->body += bytes; };
  const auto until = std::chrono::steady_clock::now() + patience.quiet_time_max;
  const auto late = [&]() -> std::optional<Error> {
    if (std::chrono::steady_clock::now() < until) return std::nullopt;
    return Error{ErrorCode::kDeadline,
                 fmt::format("{} did not end its {} within {} ms (--timeout-sec)", target.base_url,
                             what, patience.quiet_time_max.count()),
                 {}};
  };
  TRY(wait_for(std::move(call), std::move(events), patience, late));
  return std::move(*response);
}

ModelAnswer ask_for_model(const Target& target, const Patience& patience) {
  const Result<net::HttpResponse> response = get(target, "/v1/models", "list of models", patience);
  if (response.ok()) return read_models(target, *response);
  return {.name = response.error(), .may_come = response.error().code != ErrorCode::kCancelled};
}

}  // namespace

Result<std::string> first_model(const Target& target, const base::Clock& clock,
                                const Patience& patience) {
  while (true) {
    ModelAnswer answer = ask_for_model(target, patience);
    if (!answer.may_come || clock.now_ns() >= patience.ready_until_ns) {
      return std::move(answer.name);
    }
    TRY(pause(patience));
  }
}

std::string metrics_page(const Target& target, const Patience& patience) {
  const Result<net::HttpResponse> response = get(target, "/metrics", "metrics", patience);
  return response.ok() && response->status == 200 ? response->body : std::string();
}

Answered ask_once(const Target& target, std::string body, const AnswerLimits& limits,
                  const base::Clock& clock, const Patience& patience) {
  struct Ask {
    explicit Ask(const AnswerLimits& limits) : reader(record, limits) {}
    report::RequestRecord record;
    AnswerReader reader;
    std::atomic<bool> failed{false};  // of the reader, for the thread that waits
  };
  const auto ask = std::make_shared<Ask>(limits);
  const int64_t origin_ns = clock.now_ns();
  const auto now = [&clock, origin_ns] { return clock.now_ns() - origin_ns; };
  net::HttpCall call = target.call;
  call.body = std::move(body);
  net::HttpCallEvents events;
  events.on_head = [ask, now](int status, const net::HttpHeaders& headers) {
    ask->reader.head(status, headers, now());
  };
  events.on_body = [ask, now](std::string_view bytes) {
    ask->reader.bytes(bytes, now());
    ask->failed = ask->reader.failed();
  };
  const int64_t quiet_ns = std::chrono::nanoseconds(patience.quiet_time_max).count();
  const auto silent = [&]() -> std::optional<Error> {
    const int64_t progress_ns = ask->reader.last_progress_ns();
    const bool is_silent = progress_ns >= 0 && now() - progress_ns > quiet_ns;
    if (!is_silent && !ask->failed) return std::nullopt;
    return Error{ErrorCode::kDeadline, silence_words(patience.quiet_time_max), {}};
  };
  const Result<void> result = wait_for(std::move(call), std::move(events), patience, silent);
  ask->reader.end(result, now());
  return {.status = ask->reader.status(), .record = ask->record, .text = ask->reader.text()};
}

Result<Probed> probe(const Target& target, const QuestionOptions& question,
                     const workload::Conversation& conversation, const base::Clock& clock,
                     const Patience& patience) {
  workload::Turn turn = conversation.turns.front();
  if (turn.output_tokens == 0) turn.output_tokens = kOutputTokensMax;
  turn.output_tokens = std::min(turn.output_tokens, kOutputTokensMax);
  QuestionOptions tried = question;
  while (!patience.stop) {
    const Answered answered =
        ask_once(target, question_body(target, tried, conversation, {}, turn, target.model),
                 answer_limits(target, tried, turn), clock, patience);
    if (patience.stop) break;
    if (answered.record.ok) return probed_of(tried.counts, answered.record);
    if (is_refusal(answered.status) && tried.counts != Counts::kNever &&
        generates(target.backend)) {
      tried.counts = tried.counts == Counts::kEachPiece ? Counts::kAtEnd : Counts::kNever;
      continue;
    }
    if (!may_come(answered.status) || clock.now_ns() >= patience.ready_until_ns) {
      return Error{failure_code(answered.status),
                   fmt::format("{}{}: {}{}", target.base_url, target.call.target,
                               answered.record.error, advice(answered.status)),
                   {}};
    }
    TRY(pause(patience));
  }
  return Error{ErrorCode::kCancelled, "interrupted", {}};
}

}  // namespace pelton::bench

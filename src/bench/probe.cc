#include "bench/probe.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <fmt/format.h>

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

Result<std::string> first_model(const Target& target) {
  net::HttpCall call = target.call;
  const size_t endpoint = call.target.rfind("/v1/");
  const std::string prefix =
      endpoint == std::string::npos ? std::string() : call.target.substr(0, endpoint);
  call.method = "GET";
  call.target = prefix + "/v1/models";
  call.head_time_max = std::chrono::seconds(30);
  TRY_ASSIGN(const net::HttpResponse response, net::http_fetch(std::move(call)));
  const Result<Json> json = Json::parse(response.body);
  const Json* data = json.ok() ? json->find("data") : nullptr;
  if (response.status == 200 && data != nullptr && data->is_array()) {
    if (data->as_array().empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} lists no model yet, so it may still be loading: ask again when "
                               "its /ready answers 200, or name the model with --model",
                               target.base_url),
                   "model"};
    }
    if (const auto id = data->as_array().front().string("id")) return *id;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} does not tell its models (HTTP {}); --model names one",
                           target.base_url, response.status),
               "model"};
}

Answered ask_once(const Target& target, std::string body, const base::Clock& clock) {
  struct Ask {
    report::RequestRecord record;
    AnswerReader reader{record};
    std::promise<void> done;
  };
  const auto ask = std::make_shared<Ask>();
  const int64_t origin_ns = clock.now_ns();
  const auto now = [&clock, origin_ns] { return clock.now_ns() - origin_ns; };
  net::HttpCall call = target.call;
  call.body = std::move(body);
  net::HttpCallEvents events;
  events.on_head = [ask](int status, const net::HttpHeaders& headers) {
    ask->reader.head(status, headers);
  };
  events.on_body = [ask, now](std::string_view bytes) { ask->reader.bytes(bytes, now()); };
  events.on_done = [ask, now](const Result<void>& result) {
    ask->reader.end(result, now());
    ask->done.set_value();
  };
  net::HttpClient client({});
  client.start(std::move(call), std::move(events));
  ask->done.get_future().wait();
  return {.status = ask->reader.status(), .record = ask->record, .text = ask->reader.text()};
}

Result<Counts> probe(const Target& target, const QuestionOptions& question,
                     const workload::Conversation& conversation, const ProbeOptions& options,
                     const base::Clock& clock, const std::atomic<bool>& stop) {
  workload::Turn turn = conversation.turns.front();
  if (turn.output_tokens == 0 || turn.output_tokens > options.output_tokens_max) {
    turn.output_tokens = options.output_tokens_max;
  }
  const int64_t until_ns = clock.now_ns() + static_cast<int64_t>(options.ready_s * 1e9);
  QuestionOptions tried = question;
  while (!stop) {
    const Answered answered =
        ask_once(target, question_body(target, tried, conversation, {}, turn, target.model), clock);
    if (answered.record.ok) return tried.counts;
    if (is_refusal(answered.status) && tried.counts != Counts::kNever &&
        target.backend != Backend::kEmbeddings) {
      tried.counts = tried.counts == Counts::kEachPiece ? Counts::kAtEnd : Counts::kNever;
      continue;
    }
    if (!may_come(answered.status) || clock.now_ns() >= until_ns) {
      return Error{
          answered.status == 0 ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument,
          fmt::format("{}{}: {}", target.base_url, target.call.target, answered.record.error),
          {}};
    }
    std::this_thread::sleep_for(kPause);
  }
  return Error{ErrorCode::kCancelled, "interrupted", {}};
}

}  // namespace pelton::bench

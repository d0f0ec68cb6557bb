#include "eval/evaluator.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/output_file.h"
#include "eval/judge.h"
#include "eval/program_judge.h"
#include "eval/usage.h"

namespace pelton::eval {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kRetryFirst{250};
constexpr milliseconds kRetryMost{10'000};
constexpr milliseconds kLook{50};  // how often it is looked whether to stop
constexpr size_t kAnswerBytesMax = size_t{16} << 20;
constexpr size_t kErrorShown = 300;

using Key = std::pair<std::string, std::string>;  // set and id

// The journal: its first line is the setting's digest, each further one an outcome.
class Journal {
 public:
  static Result<Journal> open(const std::string& path, const std::string& digest) {
    Journal journal;
    if (path.empty()) return journal;
    const Result<std::string> text = base::read_file(path);
    if (text.ok()) TRY(journal.read(*text, path, digest));
    TRY_ASSIGN(journal.file_, base::open_output(path, base::OutputMode::kAppend));
    if (!text.ok() || text->empty()) {
      journal.write(Json(Json::Object{{"pelton_eval_journal", digest}}));
    } else if (text->back() != '\n') {
      std::fputc('\n', journal.file_.get());  // behind a line that was cut
    }
    return journal;
  }

  const std::map<Key, Outcome>& known() const { return known_; }

  // One thread at a time.
  void write(const Json& line) {
    if (file_ == nullptr) return;
    std::fputs((line.dump() + "\n").c_str(), file_.get());
    std::fflush(file_.get());
  }

 private:
  Result<void> read(std::string_view text, const std::string& path, const std::string& digest) {
    bool first = true;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = text.substr(begin, end - begin);
      begin = end + 1;
      const Result<Json> json = Json::parse(line);
      if (first) {
        first = false;
        const std::optional<std::string> written =
            json.ok() ? json->string("pelton_eval_journal") : std::nullopt;
        if (!written || *written != digest) {
          return Error{ErrorCode::kInvalidArgument,
                       fmt::format("{} is of an evaluation of another model, tasks or settings; "
                                   "remove it or take another --out",
                                   path),
                       "out"};
        }
        continue;
      }
      if (!json.ok()) continue;  // cut amid a line: asked again
      const Result<Outcome> outcome = parse_outcome(*json);
      if (outcome.ok()) known_[{outcome->set, outcome->id}] = *outcome;
    }
    return {};
  }

  base::OutputFile file_;
  std::map<Key, Outcome> known_;
};

Json body_of(const Task& task, const Setting& setting) {
  Json body;
  body.set("model", setting.model);
  for (const Json::Member& member : task.request.as_object()) body.set(member.key, member.value);
  for (const Json::Member& member : setting.sampling.as_object())
    body.set(member.key, member.value);
  return body;
}

// A server's error in its own words, cut.
std::string error_text(const net::HttpResponse& response) {
  std::string said;
  const Result<Json> json = Json::parse(response.body);
  if (json.ok()) {
    const Json* error = json->find("error");
    if (error != nullptr) said = error->string("message").value_or("");
  }
  return fmt::format("status {}: {}", response.status,
                     (said.empty() ? response.body : said).substr(0, kErrorShown));
}

// Whether it may go better later.
bool is_passing(int status) {
  return status == 408 || status == 409 || status == 425 || status == 429 || status >= 500;
}

// Of an answer that has more bytes than any is read of; HttpClient says so in these words only.
bool is_too_large(const Error& error) {
  return error.code == ErrorCode::kIo && error.message.ends_with("larger than the limit");
}

class Asking {
 public:
  Asking(const std::vector<Task>& tasks, const Setting& setting, const EvaluatorOptions& options,
         Journal journal)
      : tasks_(tasks),
        setting_(setting),
        options_(options),
        journal_(std::move(journal)),
        client_({.threads = 1, .idle_connections_max = options.concurrency}),
        outcomes_(tasks.size()) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const auto known = journal_.known().find({tasks[i].set, tasks[i].id});
      // What had no answer is asked again.
      if (known != journal_.known().end() && known->second.error.empty()) {
        outcomes_[i] = known->second;
        outcomes_[i].task = task_digest(tasks[i]);  // which an older journal does not say
        ++done_;
      } else {
        open_.push_back(i);
      }
    }
  }

  Result<Evaluation> run() {
    std::vector<std::thread> threads;
    const size_t count = std::min(open_.size(), static_cast<size_t>(options_.concurrency));
    running_ = count;
    for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    while (running_ > 0) {
      std::this_thread::sleep_for(kLook);
      if (options_.stopped && options_.stopped()) stopping_ = true;
      if (options_.progress) {
        options_.progress(done_, static_cast<int64_t>(tasks_.size()));
      }
    }
    for (std::thread& thread : threads) thread.join();
    if (stopping_) return Error{ErrorCode::kCancelled, "interrupted", {}};
    return Evaluation{.setting = setting_, .outcomes = std::move(outcomes_)};
  }

 private:
  void work() {
    for (size_t next = next_++; next < open_.size() && !stopping_; next = next_++) {
      const size_t index = open_[next];
      Outcome outcome = ask(tasks_[index]);
      if (stopping_) break;
      outcome.task = task_digest(tasks_[index]);
      std::lock_guard lock(mutex_);
      journal_.write(outcome_json(outcome));
      outcomes_[index] = std::move(outcome);
      ++done_;
    }
    --running_;
  }

  Outcome ask(const Task& task) {
    Outcome outcome{.set = task.set, .id = task.id};
    net::HttpCall call = options_.call;
    const Json body = body_of(task, setting_);
    call.body = body.dump();
    call.repeatable = true;
    call.body_bytes_max = kAnswerBytesMax;
    call.head_time_max = call.quiet_time_max = call.whole_time_max = options_.answer_time_max;
    const Clock::time_point begin = Clock::now();
    milliseconds wait = kRetryFirst;
    for (int attempt = 0; !stopping_; ++attempt) {
      const Result<net::HttpResponse> response = fetch(call);
      milliseconds at_least{0};
      if (response.ok() && response->status == 200) {
        const Result<ReadAnswer> read = read_answer(response->body);
        if (read.ok()) {
          outcome = judged(task, *read);
          outcome.usage_fault = usage_fault(read->usage, read->answer, asked_tokens(body));
          return outcome;
        }
        outcome.error = read.error().message;
      } else if (response.ok()) {
        outcome.error = error_text(*response);
        if (!is_passing(response->status)) return outcome;
        at_least = retry_after(response->headers.get("retry-after"));
      } else {
        outcome.error = response.error().message;
        if (is_too_large(response.error())) return outcome;  // the next one would be, too
      }
      if (attempt >= options_.retries_max || Clock::now() - begin > options_.retry_time_max) {
        return outcome;
      }
      rest(std::max(wait, at_least));
      wait = std::min(wait * 2, kRetryMost);
    }
    return outcome;
  }

  // Waits for the answer, and ends the call where the evaluation is to stop.
  Result<net::HttpResponse> fetch(const net::HttpCall& call) {
    struct State {
      net::HttpResponse response;
      Result<void> result;
      std::binary_semaphore done{0};
    };
    const auto state = std::make_shared<State>();
    const net::HttpClient::CallId id = client_.start(
        call, {.on_start = {},
               .on_head =
                   [state](int status, const net::HttpHeaders& headers) {
                     state->response.status = status;
                     state->response.headers = headers;
                   },
               .on_body = [state](std::string_view bytes) { state->response.body += bytes; },
               .on_done =
                   [state](Result<void> result) {
                     state->result = std::move(result);
                     state->done.release();
                   }});
    bool cancelled = false;
    while (!state->done.try_acquire_for(kLook)) {
      if (!stopping_ || cancelled) continue;
      client_.cancel(id);
      cancelled = true;
    }
    TRY(state->result);
    return std::move(state->response);
  }

  Outcome judged(const Task& task, const ReadAnswer& read) const {
    Outcome outcome{.set = task.set,
                    .id = task.id,
                    .finish_reason = read.finish_reason,
                    .answer = read.answer.content,
                    .prompt_tokens = read.prompt_tokens,
                    .completion_tokens = read.completion_tokens};
    if (const auto* program = std::get_if<ExpectProgram>(&task.expected)) {
      const Result<bool> passes = passes_tests(*program, read.answer, options_.sandbox);
      if (!passes.ok()) return {.set = task.set, .id = task.id, .error = passes.error().message};
      outcome.is_right = *passes;
    } else {
      outcome.is_right = is_right(task.expected, read.answer);
    }
    for (const Answer::Call& call : read.answer.calls) {
      outcome.answer +=
          fmt::format("{}{}({})", outcome.answer.empty() ? "" : "\n", call.name, call.arguments);
    }
    return outcome;
  }

  void rest(milliseconds time) const {
    const Clock::time_point end = Clock::now() + time;
    while (!stopping_ && Clock::now() < end) std::this_thread::sleep_for(kLook);
  }

  const std::vector<Task>& tasks_;
  const Setting& setting_;
  const EvaluatorOptions& options_;
  Journal journal_;  // guarded by mutex_
  net::HttpClient client_;
  std::vector<size_t> open_;  // tasks without an answer
  std::mutex mutex_;
  std::vector<Outcome> outcomes_;  // guarded by mutex_
  std::atomic<size_t> next_ = 0;
  std::atomic<size_t> running_ = 0;
  std::atomic<int64_t> done_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace

milliseconds retry_after(std::string_view header) {
  int64_t seconds = 0;
  const auto read = std::from_chars(header.data(), header.data() + header.size(), seconds);
  if (read.ec == std::errc::result_out_of_range) return kRetryMost;
  constexpr int64_t kMost = kRetryMost.count() / 1000;
  return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kMost));
}

Result<ReadAnswer> read_answer(std::string_view body) {
  const Error none{ErrorCode::kInvalidArgument, "the answer is no chat completion", {}};
  const Result<Json> json = Json::parse(body);
  if (!json.ok()) return none;
  const Json* choices = json->find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return none;
  const Json& choice = choices->as_array().front();
  const Json* message = choice.find("message");
  if (message == nullptr || !message->is_object()) return none;
  ReadAnswer read;
  read.finish_reason = choice.string("finish_reason").value_or("");
  read.answer.finish_reason = read.finish_reason;
  read.answer.content = message->string("content").value_or("");
  if (const Json* calls = message->find("tool_calls"); calls != nullptr && calls->is_array()) {
    for (const Json& call : calls->as_array()) {
      const Json* function = call.find("function");
      if (function == nullptr) continue;
      read.answer.calls.push_back({.name = function->string("name").value_or(""),
                                   .arguments = function->string("arguments").value_or("")});
    }
  }
  if (const Json* usage = json->find("usage"); usage != nullptr) {
    read.usage = *usage;
    read.prompt_tokens = std::max<int64_t>(usage->integer("prompt_tokens").value_or(0), 0);
    read.completion_tokens = std::max<int64_t>(usage->integer("completion_tokens").value_or(0), 0);
  }
  return read;
}

Result<Evaluation> evaluate(const std::vector<Task>& tasks, const Setting& setting,
                            const EvaluatorOptions& options) {
  TRY_ASSIGN(Journal journal, Journal::open(options.journal, setting_digest(setting)));
  return Asking(tasks, setting, options, std::move(journal)).run();
}

}  // namespace pelton::eval

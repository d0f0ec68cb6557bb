#include "apps/computed_pages.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "api/error.h"
#include "console/pages.h"
#include "gateway/interruption.h"
#include "launch/child_program.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kWhatIf = "/v1/whatif";
constexpr std::string_view kCapacity = "/v1/capacity";
constexpr int kDoesNotFit = 5;  // exit code of a plan that there is none of; it is printed, too
constexpr size_t kWordsMax = 64;
constexpr size_t kWordBytesMax = 4096;

// In the words of the listener's other pages.
net::HttpResponse refusal(const api::ApiError& error) {
  return gateway::error_answer({}, error, {});
}

net::HttpResponse refusal(int status, std::string_view code, std::string message,
                          int retry_after_s = 0) {
  return refusal({.status = status,
                  .message = std::move(message),
                  .type = status < 500 ? "invalid_request_error" : "server_error",
                  .param = {},
                  .code = code,
                  .retry_after_s = retry_after_s});
}

Error bad(std::string message, std::string param) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::move(param)};
}

// What the query asks of the verb; each name is a flag's.
struct QueryFlag {
  std::string_view name;
  std::string_view flag;
};
constexpr std::array<QueryFlag, 5> kWhatIfFlags = {{{"pool", "--pool"},
                                                    {"last", "--last"},
                                                    {"set", "--set"},
                                                    {"late_seconds", "--late-seconds"},
                                                    {"seed", "--seed"}}};
constexpr std::array<QueryFlag, 1> kCapacityFlags = {{{"without", "--without"}}};

template <size_t N>
Result<void> add_flags(std::string_view query, const std::array<QueryFlag, N>& flags,
                       std::vector<std::string>& words) {
  for (const auto& [name, value] : net::parse_query(query)) {
    const QueryFlag* known = nullptr;
    for (const QueryFlag& one : flags) {
      if (one.name == name) known = &one;
    }
    if (known == nullptr) return bad(fmt::format("'{}' is nothing that is asked here", name), name);
    if (value.empty()) continue;
    if (value.size() > kWordBytesMax || words.size() >= kWordsMax) {
      return bad("too much is asked at once", name);
    }
    if (value.find('\0') != std::string::npos) return bad("a byte of 0 is in it", name);
    words.push_back(fmt::format("{}={}", known->flag, value));
  }
  return {};
}

// Of what the verb printed for people: without the program's name, and one line.
std::string message_of(std::string_view err) {
  constexpr std::string_view kName = "pelton: ";
  if (err.starts_with(kName)) err.remove_prefix(kName.size());
  return std::string(err.substr(0, err.find('\n')));
}

net::HttpResponse answer_of(Result<launch::ProgramRun> run) {
  if (!run.ok()) {
    if (run.error().code == ErrorCode::kDeadline) {
      return refusal(503, "takes_too_long", "this takes longer than it may; ask for less");
    }
    return refusal(500, "not_computed", "this could not be computed: " + run.error().message);
  }
  if (run->code == 0 || (run->code == kDoesNotFit && !run->out.empty())) {
    return net::json_response(std::move(run->out));
  }
  if (run->code < 128 && !run->err.empty()) {
    return refusal(400, "not_computed", message_of(run->err));
  }
  return refusal(503, "takes_too_much", "this takes more time or memory than it may; ask for less");
}

}  // namespace

ComputedPages::~ComputedPages() {
  std::thread last;
  {
    std::lock_guard lock(mutex_);
    if (given_up_ != nullptr) *given_up_ = true;
    last = std::move(thread_);
  }
  if (last.joinable()) last.join();
}

Result<std::vector<std::string>> ComputedPages::arguments_of(
    const net::HttpRequest& request) const {
  std::vector<std::string> words = {parts_.program};
  if (request.path == kWhatIf) {
    words.insert(words.end(), {"whatif", "--facts=" + parts_.facts_file, "--json=-"});
    TRY(add_flags(request.query, kWhatIfFlags, words));
  } else {
    words.insert(words.end(),
                 {"capacity", "plan", "--config=" + parts_.capacity_file, "--explain", "--json"});
    TRY(add_flags(request.query, kCapacityFlags, words));
  }
  return words;
}

bool ComputedPages::handle(const net::HttpRequest& request,
                           const std::shared_ptr<net::Exchange>& exchange) {
  const bool is_what_if = request.path == kWhatIf;
  if (!is_what_if && request.path != kCapacity) return false;
  const auto refuse = [&](net::HttpResponse response) {
    exchange->send(std::move(response));
    return true;
  };
  if (request.method != "GET") {
    net::HttpResponse response = refusal(api::method_not_allowed(request.method, request.path));
    response.headers.add("Allow", "GET");
    return refuse(std::move(response));
  }
  // A page of another site could keep operators from it.
  if (!console::is_own_page(request)) {
    return refuse(refusal(403, "forbidden_origin", "this is for the console's own page"));
  }
  if (is_what_if && !has_what_if()) {
    return refuse(refusal(404, "no_facts", "nothing is recorded here: --record-facts FILE"));
  }
  if (!is_what_if && !has_capacity()) {
    return refuse(refusal(404, "no_capacity", "no machines are known here: --capacity FILE"));
  }
  Result<std::vector<std::string>> words = arguments_of(request);
  if (!words.ok()) return refuse(refusal(api::api_error(words.error())));
  start(*std::move(words), is_what_if ? kWhatIfTimeMax : kCapacityTimeMax, exchange);
  return true;
}

void ComputedPages::start(std::vector<std::string> words, std::chrono::seconds time_max,
                          const std::shared_ptr<net::Exchange>& exchange) {
  std::lock_guard lock(mutex_);
  if (is_at_work_) {
    return exchange->send(
        refusal(503, "one_at_a_time", "another one is being computed; ask again in a moment", 1));
  }
  if (thread_.joinable()) thread_.join();  // it has done its work
  is_at_work_ = true;
  given_up_ = std::make_shared<std::atomic<bool>>(false);
  exchange->on_closed([given_up = given_up_] { *given_up = true; });
  thread_ = std::thread(
      [this, words = std::move(words), time_max, exchange, given_up = given_up_]() mutable {
        // Flags that this process has from its environment are not the verb's.
        constexpr std::array<std::string_view, 1> kLeftOut = {"PELTON_"};
        Result<launch::ProgramRun> run = launch::run_program(words, {},
                                                             {.time_max = time_max,
                                                              .memory_bytes_max = kMemoryMax,
                                                              .nice = 19,
                                                              .is_given_up = given_up.get()},
                                                             kLeftOut);
        {
          std::lock_guard done(mutex_);
          is_at_work_ = false;
        }
        auto response = std::make_shared<net::HttpResponse>(answer_of(std::move(run)));
        exchange->post([exchange, response] { exchange->send(std::move(*response)); });
      });
}

}  // namespace pelton::apps

// pelton quickstart fleet: a gateway that scales from zero on this machine, a small load, and an
// end without traces.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/life_cycle.h"
#include "apps/own_server.h"
#include "apps/verbs.h"
#include "apps/work_folder.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/config_file.h"
#include "cli/interrupt.h"
#include "console/bundle.h"
#include "net/http_client.h"

namespace pelton::apps {
namespace {

namespace fs = std::filesystem;
using cli::Flag;
using Clock = std::chrono::steady_clock;

constexpr int kClients = 6;
constexpr int kReplicas = 3;  // kClients at a time are as much as these want
constexpr std::chrono::milliseconds kLook{200};
constexpr std::chrono::seconds kStartTime{120};
constexpr std::chrono::seconds kEmptyTime{120};

// The model that ships with the project: below this folder, beside an installed program, or above
// one that was built here.
Result<std::string> box_model() {
  TRY_ASSIGN(const std::string program, own_program());
  const fs::path folder = fs::path(program).parent_path();
  for (const fs::path& place :
       {fs::path("models/pelton-box"), folder / "../share/pelton/models/pelton-box",
        folder / "../../models/pelton-box"}) {
    std::error_code error;
    if (!fs::exists(place / "config.json", error)) continue;
    return fs::weakly_canonical(place, error).string();
  }
  return Error{ErrorCode::kNotFound,
               "the model in the box is not here; name one: "
               "pelton quickstart fleet MODEL",
               "MODEL"};
}

std::string configuration(const std::string& model, const WorkFolder& folder,
                          const cli::Arguments& arguments) {
  return fmt::format(R"([gateway]
listen = "127.0.0.1:{}"
admin = "127.0.0.1:{}"

[autoscaler]
state_dir = {}

[[pool]]
name = "box"
model = "box"

[pool.scale]
min = 0
max = {}
concurrency_target = {}
window = 6
scale_down_delay = 3
idle_to_zero = 3

[pool.launch]
serve = [{}, "--served-model-name", "box", "--max-num-seqs", "4"]
start_seconds = 2
)",
                     arguments.integer("--port"), arguments.integer("--admin-port"),
                     cli::toml_quoted(folder.file("replicas")), kReplicas, kClients / kReplicas,
                     cli::toml_quoted(model));
}

// The one pool, as the autoscaler says.
struct Pool {
  int64_t desired = 0;
  int64_t ready = 0;
  int64_t others = 0;  // that start, drain or stop
  std::string decision;
  std::string failure;
};

class Quickstart {
 public:
  Quickstart(OwnServer gateway, const cli::Interrupt& interrupt)
      : gateway_(std::move(gateway)),
        url_(gateway_->url()),
        admin_(gateway_->said("admin on ")),
        interrupt_(interrupt) {}

  Result<void> run(const cli::Arguments& arguments);

 private:
  Result<void> say(std::string_view text) const;
  Result<net::HttpResponse> ask();
  // None: nothing has been decided yet.
  Result<std::optional<Pool>> pool();
  // A line, if the numbers are others than those of the last one. Errors: kIo: replicas do not
  // start.
  Result<void> show(const Pool& now);
  // The same again and again, until `until` says so. Errors: kCancelled, kDeadline, those of
  // show().
  template <typename Until>
  Result<void> watch(std::chrono::seconds at_most, const Until& until);
  Result<void> first_request();
  Result<void> load(std::chrono::milliseconds time);

  std::optional<OwnServer> gateway_;  // none: it is over before its time
  const std::string url_;
  const std::string admin_;
  const cli::Interrupt& interrupt_;
  const Clock::time_point begun_ = Clock::now();
  net::HttpClient client_{net::HttpClient::Options{}};
  std::string shown_;
};

Result<void> Quickstart::say(std::string_view text) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  return write_text(fmt::format("{:6.1f} s  {}\n", seconds, text));
}

Result<net::HttpResponse> Quickstart::ask() {
  TRY_ASSIGN(net::HttpCall call, net::make_http_call("POST", url_ + "/v1/chat/completions"));
  call.headers.add("Content-Type", "application/json");
  call.body =
      R"({"model":"box","messages":[{"role":"user","content":"What is a Pelton wheel?"}],"max_tokens":100})";
  call.whole_time_max = kStartTime;
  return net::http_fetch(client_, std::move(call));
}

Result<std::optional<Pool>> Quickstart::pool() {
  TRY_ASSIGN(net::HttpCall call, net::make_http_call("GET", admin_ + "/v1/autoscaler"));
  call.whole_time_max = std::chrono::seconds(10);
  TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(client_, std::move(call)));
  TRY_ASSIGN(const Json json, Json::parse(answer.body));
  const Json* pools = json.find("pools");
  if (pools == nullptr || !pools->is_array()) {
    return Error{ErrorCode::kIo, "the gateway says nothing of its pool", {}};
  }
  if (pools->as_array().empty()) return std::optional<Pool>();
  const Json& one = pools->as_array().front();
  const auto number = [&](std::string_view key) { return one.integer(key).value_or(0); };
  return std::optional<Pool>(
      Pool{.desired = number("desired"),
           .ready = number("ready"),
           .others = number("starting") + number("draining") + number("stopping"),
           .decision = one.string("decision").value_or(""),
           .failure = one.string("failure").value_or("")});
}

Result<void> Quickstart::show(const Pool& now) {
  if (!now.failure.empty()) {
    return Error{ErrorCode::kIo, "replicas do not start: " + now.failure, {}};
  }
  const std::string numbers =
      fmt::format("{} ready, {} wanted", now.ready, now.desired) +
      (now.others > 0 ? fmt::format(", {} starting or leaving", now.others) : "");
  if (numbers == shown_) return {};
  shown_ = numbers;
  return say(fmt::format("{:<36} {}", numbers, now.decision));
}

template <typename Until>
Result<void> Quickstart::watch(std::chrono::seconds at_most, const Until& until) {
  const Clock::time_point end = Clock::now() + at_most;
  for (;;) {
    TRY_ASSIGN(const std::optional<Pool> now, pool());
    if (now) TRY(show(*now));
    if (now && until(*now)) return {};
    if (interrupt_.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
    if (Clock::now() >= end) {
      return Error{ErrorCode::kDeadline, fmt::format("nothing more in {} s", at_most.count()), {}};
    }
    std::this_thread::sleep_for(kLook);
  }
}

Result<void> Quickstart::first_request() {
  TRY(say("a first request: it is held until a replica is there"));
  std::atomic<bool> is_over = false;
  Result<net::HttpResponse> answer = Error{ErrorCode::kIo, "", {}};
  std::thread asking([&] {
    answer = ask();
    is_over = true;
  });
  const Result<void> watched = watch(kStartTime, [&](const Pool&) { return is_over.load(); });
  if (!watched) gateway_.reset();  // what it still holds is refused
  asking.join();
  TRY(watched);
  TRY(answer);
  if (answer->status != 200) {
    return Error{
        ErrorCode::kIo, fmt::format("it is answered {}: {}", answer->status, answer->body), {}};
  }
  return say(fmt::format("it is answered; it was held for {} ms",
                         answer->headers.get("x-pelton-held-ms")));
}

Result<void> Quickstart::load(std::chrono::milliseconds time) {
  TRY(say(fmt::format("{} requests at a time for {:.0f} s", kClients,
                      std::chrono::duration<double>(time).count())));
  const Clock::time_point end = Clock::now() + time;
  std::atomic<int64_t> answered = 0;
  std::atomic<int64_t> failed = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      while (Clock::now() < end && !interrupt_.pending()) {
        const Result<net::HttpResponse> answer = ask();
        ++(answer.ok() && answer->status == 200 ? answered : failed);
      }
    });
  }
  const Result<void> watched = watch(std::chrono::ceil<std::chrono::seconds>(time) + kStartTime,
                                     [&](const Pool&) { return Clock::now() >= end; });
  if (!watched) gateway_.reset();
  for (std::thread& client : clients) client.join();
  TRY(watched);
  TRY(say(fmt::format("the load is over: {} answered, {} failed", answered.load(), failed.load())));
  if (failed == 0) return {};
  return Error{ErrorCode::kIo, fmt::format("{} requests failed", failed.load()), {}};
}

Result<void> Quickstart::run(const cli::Arguments& arguments) {
  std::string head = fmt::format("API      {}/v1 (model: box)\n", url_);
  if (!console::bundle().empty()) {
    head += fmt::format("chat     {}/console\nconsole  {}/console (Fleet, Scaling, Requests)\n",
                        url_, admin_);
  }
  TRY(write_output(head));
  TRY(watch(kStartTime, [](const Pool&) { return true; }));
  TRY(first_request());
  TRY(load(std::chrono::milliseconds(static_cast<int64_t>(arguments.number("--seconds") * 1000))));
  TRY(watch(kEmptyTime, [](const Pool& now) { return now.desired + now.ready + now.others == 0; }));
  if (!arguments.has("--stay")) return say("over; nothing is left on this machine");
  TRY(say("it stays until Ctrl-C"));
  interrupt_.wait();
  return {};
}

Result<void> run_quickstart(const cli::Arguments& arguments) {
  std::string model = arguments.text("MODEL");
  if (model.empty()) {
    TRY_ASSIGN(model, box_model());
  } else {
    std::error_code error;
    // Replicas start in a folder of their own. What is no file here may be a hub's.
    if (fs::exists(model, error)) {
      model = fs::absolute(model, error).string();
    } else if (std::ranges::count(model, '/') != 1 || model.starts_with('/')) {
      return Error{ErrorCode::kNotFound, "there is no model " + model, "MODEL"};
    }
  }
  cli::Interrupt interrupt;
  // An impatient second Ctrl-C would reach the gateway twice, and leave what it has started.
  interrupt.ignore_further();
  TRY_ASSIGN(const WorkFolder folder, WorkFolder::make("pelton-quickstart"));
  const std::string file = folder.file("gateway.toml");
  TRY(base::write_file(file, configuration(model, folder, arguments)));
  TRY_ASSIGN(OwnServer gateway,
             OwnServer::start({"gateway", "--config", file, "--with-autoscaler", "--console", "all",
                               "--log-level", arguments.text("--log-level")},
                              interrupt));
  const Result<void> shown = Quickstart(std::move(gateway), interrupt).run(arguments);
  if (interrupt.pending()) TRY(write_output("ended; nothing is left on this machine\n"));
  return shown;
}

}  // namespace

cli::Verb quickstart_verb() {
  cli::Verb verb{
      .name = "quickstart fleet",
      .summary = "Shows a fleet that scales from zero, on this machine, in a minute.",
      .about =
          "Starts a gateway with an autoscaler and no replica, asks a question, which starts one,\n"
          "lets a small load make it three, and waits until nobody asks and all are gone. Prints\n"
          "what happens and where the console shows it. Nothing is left when it ends, also by\n"
          "Ctrl-C. docs/quickstart.md has it step by step.",
      .positionals = {{.name = "MODEL",
                       .help = "what replicas serve; without it, the model in the box",
                       .required = false}},
      .flags = {{.name = "--seconds",
                 .value = "S",
                 .help = "how long the load lasts",
                 .kind = Flag::Kind::kNumber,
                 .default_text = "15",
                 .least = 1,
                 .most = 3600},
                {.name = "--stay",
                 .help =
                     "stay when the show is over, until Ctrl-C: the gateway answers, and starts "
                     "replicas when somebody asks",
                 .kind = Flag::Kind::kSwitch},
                {.name = "--port",
                 .value = "N",
                 .help = "where the gateway listens; 0: any free port",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0",
                 .most = 65535},
                {.name = "--admin-port",
                 .value = "N",
                 .help = "where the console is; 0: any free port",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0",
                 .most = 65535}},
      .examples = {"pelton quickstart fleet", "pelton quickstart fleet --seconds 60 --stay"},
      .run = run_quickstart,
  };
  for (Flag& flag : life_flags()) {
    if (flag.name != "--log-level") continue;
    flag.default_text = "error";
    verb.flags.push_back(std::move(flag));
  }
  return verb;
}

}  // namespace pelton::apps

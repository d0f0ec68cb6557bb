// pelton chain ...: checks chain files, draws them, and runs one against a server.
#include "chain/chain.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/chains_flags.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "chain/chain_graph.h"
#include "chain_http/http_step.h"
#include "chain_http/run_driver.h"
#include "chain_http/run_report.h"
#include "cli/interrupt.h"
#include "net/http_client.h"
#include "net/work_loop.h"

namespace pelton::apps {
namespace {

using cli::Flag;

Error bad_flag(std::string message, std::string_view flag) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::string(flag)};
}

cli::Positional file_positional() {
  return {.name = "FILE", .help = "a chain: TOML, as docs/chains.md has it"};
}

Result<void> check(const cli::Arguments& arguments) {
  std::string lines;
  for (const std::string& file : arguments.list("FILE")) {
    TRY_ASSIGN(const chain::Chain chain, chain::read_chain(file));
    lines += fmt::format("{}: chain '{}', {} steps\n", file, chain.name, chain.steps.size());
  }
  return write_text(lines);
}

Result<void> graph(const cli::Arguments& arguments) {
  TRY_ASSIGN(const chain::Chain chain, chain::read_chain(arguments.text("FILE")));
  return write_text(arguments.text("--format") == "dot" ? chain::graph_dot(chain)
                                                        : chain::graph_text(chain));
}

// A JSON object, or of a file that "@" names.
Result<Json> read_chain_input(const cli::Arguments& arguments) {
  std::string text = arguments.text("--input");
  if (text.starts_with('@')) {
    TRY_ASSIGN(text, read_input(text.substr(1)));
  }
  Result<Json> input = Json::parse(text);
  if (!input.ok()) return bad_flag("--input is no JSON: " + input.error().message, "input");
  return input;
}

struct Target {
  std::string url;  // without "/v1" and a last slash
  net::HttpHeaders headers;
};

Target target_of(const cli::Arguments& arguments) {
  Target target{.url = arguments.text("--url"), .headers = {}};
  if (target.url.ends_with('/')) target.url.pop_back();
  if (target.url.ends_with("/v1")) target.url.resize(target.url.size() - 3);
  if (arguments.has("--api-key")) {
    target.headers.add("Authorization", "Bearer " + arguments.text("--api-key"));
  }
  return target;
}

bool asks_any_model(const chain::Chain& chain) {
  for (const chain::Step& step : chain.steps) {
    if (step.kind == chain::Step::Kind::kModel && step.target == "*") return true;
  }
  return false;
}

// What "model:*" stands for: --model, or the first that the server lists.
Result<std::string> any_model(const cli::Arguments& arguments, const chain::Chain& chain,
                              const Target& target) {
  if (arguments.has("--model") || !asks_any_model(chain)) return arguments.text("--model");
  TRY_ASSIGN(net::HttpCall call, net::make_http_call("GET", target.url + "/v1/models"));
  call.headers = target.headers;
  call.whole_time_max = std::chrono::seconds(10);
  TRY_ASSIGN(const net::HttpResponse response, net::http_fetch(std::move(call)));
  const Result<Json> models = Json::parse(response.body);
  const Json* const data = models.ok() ? models->find("data") : nullptr;
  if (data != nullptr && data->is_array() && !data->as_array().empty()) {
    if (auto id = data->as_array().front().string("id")) return *std::move(id);
  }
  return bad_flag(fmt::format("{}/v1/models answers {} and names no model; --model names one",
                              target.url, response.status),
                  "url");
}

// The run's end, and the text on its way to standard output.
class PrintedRun final : public chain_http::RunSink {
 public:
  PrintedRun(const chain::Chain& chain, bool prints_text, bool prints_all)
      : chain_(chain), prints_text_(prints_text), prints_all_(prints_all) {}

  void on_events(const chain::ChainRun::Work& work) override {
    for (const chain::RunEvent& event : work.events) {
      if (prints_text_ && event.kind == chain::RunEvent::Kind::kText && written_.ok()) {
        written_ = write_output(event.text);
      }
    }
  }
  void on_end(const chain::ChainRun& run) override {
    if (run.failure()) {
      const bool cancelled = run.failure()->kind == chain::RunFailure::Kind::kCancelled;
      return end_.set_value(Error{
          cancelled ? ErrorCode::kCancelled : ErrorCode::kUnavailable, run.failure()->message, {}});
    }
    if (!written_.ok()) return end_.set_value(written_);
    std::string text = "\n";
    if (!prints_text_) {
      text = (prints_all_ ? chain_http::run_body("run", chain_, run) : run.output().dump()) + "\n";
    }
    end_.set_value(write_output(text));
  }
  // Whoever reads standard output is waited for where it is written.
  size_t backlog_bytes() override { return 0; }

  std::future<Result<void>> end() { return end_.get_future(); }

 private:
  const chain::Chain& chain_;
  const bool prints_text_;
  const bool prints_all_;
  Result<void> written_;
  std::promise<Result<void>> end_;
};

Result<void> run_chain(const cli::Arguments& arguments) {
  TRY_ASSIGN(chain::Chain read, chain::read_chain(arguments.text("FILE")));
  const auto chain = std::make_shared<const chain::Chain>(std::move(read));
  TRY(chain_http::check_http_steps(*chain, arguments.list("--chain-hosts")));
  if (arguments.has("--stream") && !chain->stream_from) {
    return bad_flag("this chain's output has no stream_from", "stream");
  }
  TRY_ASSIGN(Json input, read_chain_input(arguments));
  TRY(chain::check_input(*chain, input));
  const Target target = target_of(arguments);
  TRY_ASSIGN(const std::string model, any_model(arguments, *chain, target));
  const base::SystemClock clock;
  const cli::Interrupt interrupt;
  chain::ChainRun::Options options{.any_model = model, .streamed = arguments.has("--stream")};
  if (chain->timeout_s) {
    options.deadline_ns = clock.now_ns() + static_cast<int64_t>(*chain->timeout_s * 1e9);
  }
  net::HttpClient client({});
  net::WorkLoop loop("pelton-chain");
  const auto sink =
      std::make_shared<PrintedRun>(*chain, arguments.has("--stream"), arguments.has("--json"));
  std::future<Result<void>> end = sink->end();
  const chain_http::HttpSteps way{.loop = loop.queue(),
                                  .client = &client,
                                  .models_url = target.url,
                                  .model_headers = target.headers,
                                  .now_ns = [&clock] { return clock.now_ns(); }};
  const auto driver = std::make_shared<chain_http::RunDriver>(
      chain_http::RunDriver::Parts{
          .loop = loop.queue(),
          .chain = chain,
          .carry_out =
              [way](const chain::StepCall& call, chain_http::StepCallEvents events) {
                return chain_http::start_http_step(way, call, std::move(events));
              },
          .sink = sink,
          .clock = clock},
      std::move(input), options);
  loop.post([driver] { driver->start(); });
  constexpr std::chrono::milliseconds kLook{100};
  while (end.wait_for(kLook) != std::future_status::ready) {
    if (interrupt.pending()) loop.post([driver] { driver->cancel(); });
  }
  return end.get();
}

std::vector<Flag> run_flags() {
  return {{.name = "--url",
           .value = "URL",
           .help = "the server that model: steps ask, any with OpenAI's API",
           .default_text = "http://127.0.0.1:8000",
           .may_be_empty = false},
          {.name = "--input",
           .value = "JSON",
           .help = "the chain's input, an object; @FILE reads it from a file, @- from standard "
                   "input",
           .default_text = "{}",
           .may_be_empty = false},
          {.name = "--model",
           .value = "NAME",
           .help = "what \"model:*\" stands for; default: the first that the server lists",
           .may_be_empty = false},
          {.name = "--api-key",
           .value = "KEY",
           .help = "sent to the server as a bearer token",
           .secret = true,
           .may_be_empty = false},
          chain_hosts_flag(),
          {.name = "--stream",
           .help = "print the text of the output's stream_from as it comes, and nothing else",
           .kind = Flag::Kind::kSwitch},
          {.name = "--json",
           .help = "print what the run took too: steps, calls, milliseconds, tokens",
           .kind = Flag::Kind::kSwitch}};
}

}  // namespace

std::vector<cli::Verb> chain_verbs() {
  return {{.name = "chain check",
           .summary = "Checks chain files: keys, names, types, cycles.",
           .about = "",
           .positionals = {{.name = "FILE",
                            .help = "chains, as docs/chains.md has them",
                            .many = true}},
           .flags = {},
           .examples = {"pelton chain check chains/*.toml"},
           .run = check},
          {.name = "chain graph",
           .summary = "Draws a chain: which step needs which.",
           .about = "",
           .positionals = {file_positional()},
           .flags = {{.name = "--format",
                      .value = "FORMAT",
                      .help = "dot is Graphviz's",
                      .default_text = "text",
                      .choices = {"text", "dot"}}},
           .examples = {"pelton chain graph chains/retrieve.toml",
                        "pelton chain graph chains/retrieve.toml --format dot | dot -Tsvg"},
           .run = graph},
          {.name = "chain run",
           .summary = "Runs a chain against a server and prints its output.",
           .about = "Steps run here; only their requests to models and hosts go elsewhere. Ctrl-C "
                    "ends them all.",
           .positionals = {file_positional()},
           .flags = run_flags(),
           .exclusive = {{"--stream", "--json"}},
           .examples = {"pelton chain run chains/revise.toml --input '{\"question\": \"What is a "
                        "Pelton wheel?\"}'",
                        "pelton chain run chains/long_document.toml --input @input.json --url "
                        "http://127.0.0.1:8080"},
           .run = run_chain}};
}

}  // namespace pelton::apps

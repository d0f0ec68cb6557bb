// pelton fleet ...: asks a running gateway's admin listener, and gives it commands.
#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/fleet_admin.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "net/http_client.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::chrono::seconds kAnswerMax{10};
constexpr std::chrono::seconds kErasedMax{70};  // workers have a minute for it

cli::Positional name_positional() {
  return {.name = "NAME", .help = "a worker, as `fleet ls` names it"};
}

// What the gateway answers; its refusals are errors in its own words.
Result<Json> ask(const cli::Arguments& arguments, std::string method, const std::string& path,
                 std::string body = {}, std::chrono::seconds time_max = kAnswerMax) {
  TRY_ASSIGN(net::HttpCall call, admin_call(arguments, std::move(method), path));
  call.whole_time_max = time_max;
  call.body = std::move(body);
  TRY_ASSIGN(const net::HttpResponse response, net::http_fetch(std::move(call)));
  TRY_ASSIGN(Json json, Json::parse(response.body));
  if (response.status == 200) return json;
  const Json* error = json.find("error");
  std::string words =
      error == nullptr ? "" : error->string("message").value_or("no reason was given");
  if (const Json* failed = json.find("failed"); failed != nullptr && failed->is_array()) {
    words = "not done at " + failed->dump();
    if (const Json* reasons = json.find("reasons"); reasons != nullptr)
      words += ": " + reasons->dump();
  }
  const std::string code = error == nullptr ? "" : error->string("code").value_or("");
  if (code == "rollout_not_found" || code == "worker_not_found") {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}; `pelton fleet {}` lists them", words,
                             code == "worker_not_found" ? "ls" : "rollouts"),
                 "NAME"};
  }
  return Error{response.status == 404 ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
               fmt::format("the gateway answers {}: {}", response.status, words)};
}

std::string path_of(const cli::Arguments& arguments) {
  return "/v1/workers/" + net::percent_encode(arguments.text("NAME"));
}

std::string table(const Json::Array& workers) {
  std::string out = fmt::format("{:<24} {:<12} {:<9} {:<8} {:>7} {:>7} {:>8} {:>8}  {:<22} {}\n",
                                "NAME", "POOL", "STATE", "ROLE", "RUNNING", "WAITING", "REQUESTS",
                                "FAILURES", "ADDRESS", "REASON");
  for (const Json& one : workers) {
    const auto text = [&](std::string_view key) { return one.string(key).value_or(""); };
    const auto number = [&](std::string_view key) { return one.integer(key).value_or(0); };
    const std::string reason = text("reason");
    out += fmt::format("{:<24} {:<12} {:<9} {:<8} {:>7} {:>7} {:>8} {:>8}  {:<22} {}\n",
                       text("name"), text("pool"), text("state"), text("role"), number("running"),
                       number("waiting"), number("requests"), number("failures"), text("address"),
                       reason.empty() ? "-" : reason);
  }
  return out;
}

Result<void> list(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Json answer, ask(arguments, "GET", "/v1/workers"));
  const Json* workers = answer.find("workers");
  if (workers == nullptr || !workers->is_array()) {
    return Error{ErrorCode::kIo, "no gateway answers there"};
  }
  if (arguments.has("--json")) return write_output(workers->dump() + "\n");
  if (workers->as_array().empty()) return write_text("the gateway knows of no worker\n");
  return write_text(table(workers->as_array()));
}

Result<void> show(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Json answer, ask(arguments, "GET", path_of(arguments)));
  return write_output(answer.dump() + "\n");
}

// One line for each bound of each key.
std::string limits_table(const Json& answer) {
  std::string out = fmt::format("{:<24} {:<12} {:<20} {:>10} {:>10} {:>10}\n", "TENANT", "KEY",
                                "LIMIT", "WHOLE", "HERE", "LEFT");
  const Json* limits = answer.find("limits");
  if (limits == nullptr || !limits->is_array()) return out;
  for (const Json& one : limits->as_array()) {
    for (const char* name : {"requests_per_minute", "tokens_per_minute", "concurrent_requests"}) {
      const Json* bound = one.find(name);
      if (bound == nullptr) continue;
      out += fmt::format("{:<24} {:<12} {:<20} {:>10} {:>10} {:>10}\n",
                         one.string("tenant").value_or(""), one.string("key").value_or(""), name,
                         bound->integer("limit").value_or(0), bound->integer("here").value_or(0),
                         bound->integer("left").value_or(0));
    }
  }
  if (const int64_t more = answer.integer("not_shown").value_or(0); more > 0) {
    out += fmt::format("and {} further keys: --tenant shows one tenant's\n", more);
  }
  return out;
}

Result<void> limits(const cli::Arguments& arguments) {
  const std::string query =
      arguments.has("--tenant") ? "?tenant=" + net::percent_encode(arguments.text("--tenant")) : "";
  TRY_ASSIGN(const Json answer, ask(arguments, "GET", "/v1/limits" + query));
  if (arguments.has("--json")) return write_output(answer.dump() + "\n");
  return write_text(limits_table(answer));
}

// One line for each worker, the chosen one marked, times in milliseconds.
std::string explanation(const Json& answer) {
  std::string out =
      fmt::format("prompt: {} tokens, {} blocks with names; answers lately: {} tokens\n",
                  answer.integer("prompt_tokens").value_or(0), answer.integer("blocks").value_or(0),
                  answer.integer("output_tokens").value_or(0));
  out += fmt::format("{:<2}{:<24} {:<9} {:>7} {:>9} {:>6} {:>9} {:>6} {:>12} {:>11} {:>9}  {}\n",
                     "", "WORKER", "STATE", "HIT", "TTFT", "BIAS", "DECODE", "BIAS", "INTERFERENCE",
                     "KV_PRESSURE", "COST", "REASON");
  const Json* candidates = answer.find("candidates");
  if (candidates == nullptr || !candidates->is_array()) return out;
  for (const Json& one : candidates->as_array()) {
    const Json* terms = one.find("terms");
    if (terms == nullptr) continue;
    const auto ms = [&](const Json& of, std::string_view key) {
      return fmt::format("{:.2f}", of.number(key).value_or(0.0) * 1e3);
    };
    const std::string name = one.string("name").value_or("");
    const bool chosen = answer.string("chosen") == std::optional(name);
    const std::string reason = one.string("reason").value_or("");
    out += fmt::format(
        "{:<2}{:<24} {:<9} {:>7} {:>9} {:>6.2f} {:>9} {:>6.2f} {:>12} {:>11} {:>9}  {}\n",
        chosen ? "*" : "", name, one.string("state").value_or(""),
        one.integer("hit_tokens").value_or(0), ms(*terms, "first_s"),
        one.number("bias").value_or(1.0), ms(*terms, "rest_s"),
        one.number("rest_bias").value_or(1.0), ms(*terms, "harm_s"), ms(*terms, "room_s"),
        ms(one, "cost_s"), reason.empty() ? "-" : reason);
  }
  return out;
}

// Of two workers that the prompt would be split between.
std::string pair_line(const Json& answer) {
  const Json* pair = answer.find("pair");
  const Json* terms = pair == nullptr ? nullptr : pair->find("terms");
  if (terms == nullptr) return "";
  const auto ms = [](const Json& of, std::string_view key) {
    return of.number(key).value_or(0.0) * 1e3;
  };
  return fmt::format(
      "{}split: {} computes the prompt, {} goes on: TTFT {:.2f}, warm {:.2f} later, DECODE {:.2f}, "
      "INTERFERENCE {:.2f}, KV_PRESSURE {:.2f}, COST {:.2f}\n",
      pair->boolean("chosen").value_or(false) ? "* " : "  ", pair->string("prefill").value_or(""),
      pair->string("decode").value_or(""), ms(*terms, "first_s"), ms(*terms, "over_s"),
      ms(*terms, "rest_s"), ms(*terms, "harm_s"), ms(*terms, "room_s"), ms(*pair, "cost_s"));
}

Result<void> explain(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string body, read_input(arguments.text("BODY")));
  TRY_ASSIGN(const Json answer,
             ask(arguments, "POST",
                 "/v1/explain?path=" + net::percent_encode(arguments.text("--path")), body));
  if (arguments.has("--json")) return write_output(answer.dump() + "\n");
  return write_text(explanation(answer) + pair_line(answer));
}

Result<void> config_get(const cli::Arguments& arguments) {
  TRY_ASSIGN(const net::HttpResponse answer, config_call(arguments, {}));
  fmt::print(stderr, "{}\n", answer.headers.get("ETag"));
  return write_output(answer.body);
}

Result<void> config_put(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::string text, read_input(arguments.text("FILE")));
  ConfigCall call{.method = "PUT", .body = std::move(text)};
  if (arguments.has("--if-match")) call.etag = arguments.text("--if-match");
  TRY(config_call(arguments, std::move(call)));
  return write_output("the configuration is in force\n");
}

std::string interval_text(const Json& of, double factor) {
  return fmt::format("{:.3g} to {:.3g}", of.number("low").value_or(0) * factor,
                     of.number("high").value_or(0) * factor);
}

// What its tests know of it: a line each.
std::string rollout_figures(const Json& one) {
  std::string out;
  const Json* errors = one.find("errors");
  for (const char* side : {"candidate", "others"}) {
    const Json* of = errors == nullptr ? nullptr : errors->find(side);
    if (of == nullptr) continue;
    out += fmt::format("  {:<10} {} of {} requests failed, interval {} %\n", side,
                       of->integer("failed").value_or(0), of->integer("requests").value_or(0),
                       interval_text(*of, 100));
  }
  for (const char* name : {"ttft", "length"}) {
    const Json* of = one.find(name);
    if (of == nullptr) continue;
    out += fmt::format("  {:<10} {:.2f} times the others', interval {} ({} beside {})\n", name,
                       of->number("ratio").value_or(1), interval_text(*of, 1),
                       of->integer("candidate").value_or(0), of->integer("others").value_or(0));
  }
  const Json* tests = one.find("tests");
  if (tests == nullptr || !tests->is_array()) return out;
  out += "  evidence  ";
  for (const Json& test : tests->as_array()) {
    const double needed = test.number("log_needed").value_or(1);
    out += fmt::format(" {} {:.0f} %", test.string("name").value_or(""),
                       100 * std::max(test.number("log_evidence").value_or(0), 0.0) / needed);
  }
  return out + " of what takes it back\n";
}

std::string rollout_text(const Json& one) {
  const auto text = [&](std::string_view key) { return one.string(key).value_or(""); };
  std::string steps;
  const auto step = static_cast<size_t>(one.integer("step").value_or(0));
  std::string gates;
  const Json* all = one.find("steps");
  for (size_t i = 0; all != nullptr && all->is_array() && i < all->as_array().size(); ++i) {
    const Json& each = all->as_array()[i];
    const std::string share = fmt::format("{:.4g} %", each.number("share").value_or(0) * 100);
    steps += (i == 0 ? "" : " -> ") + (i == step ? "[" + share + "]" : share);
    if (i != step || !each.find("min_requests")) continue;
    gates = fmt::format(
        "  gates      {} of {} requests, {:.0f} of {:.0f} s\n",
        one.integer("step_requests").value_or(0), each.integer("min_requests").value_or(0),
        one.number("step_seconds").value_or(0), each.number("min_seconds").value_or(0));
  }
  const std::string phase = text("phase");
  std::string out =
      fmt::format("{}: {} of {}: {}, {:.4g} % of the conversations{}\n", text("name"), text("arm"),
                  text("model"), phase, one.number("share").value_or(0) * 100,
                  one.boolean("has_workers").value_or(true) ? "" : "; its pool takes no requests");
  if (!text("reason").empty()) out += fmt::format("  {}: {}\n", text("reason"), text("why"));
  const bool is_on = phase == "running" || phase == "paused";
  return out + fmt::format("  steps      {}\n", steps) + (is_on ? gates : "") +
         rollout_figures(one);
}

Result<void> rollouts(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Json answer, ask(arguments, "GET", "/v1/rollouts"));
  if (arguments.has("--json")) return write_output(answer.dump() + "\n");
  const Json* list = answer.find("rollouts");
  if (list == nullptr || !list->is_array()) {
    return Error{ErrorCode::kIo, "no gateway answers there"};
  }
  if (list->as_array().empty()) return write_output("no route has a [route.rollout]\n");
  std::string text;
  for (const Json& one : list->as_array()) text += rollout_text(one);
  return write_text(text);
}

// As it is then, if it is given a command.
Result<void> rollout(const cli::Arguments& arguments) {
  const bool commands = arguments.has("COMMAND");
  std::string path = "/v1/rollouts/" + net::percent_encode(arguments.text("NAME"));
  if (commands) path += "/" + arguments.text("COMMAND");
  TRY_ASSIGN(const Json answer, ask(arguments, commands ? "POST" : "GET", path));
  if (arguments.has("--json")) return write_output(answer.dump() + "\n");
  return write_text(rollout_text(answer));
}

Flag json_flag() {
  return {.name = "--json", .help = "all that is known, as JSON", .kind = Flag::Kind::kSwitch};
}

cli::Verb rollouts_verb() {
  return {.name = "fleet rollouts",
          .summary = "Shows a gateway's roll-outs, their figures and verdicts.",
          .about =
              "A roll-out takes an arm of a route to all conversations by steps, and takes it\n"
              "back where its errors, TTFT or output length speak against it (docs/rollouts.md).\n"
              "Intervals hold at every look with a chance of 95 %.",
          .flags = {admin_flag(), json_flag()},
          .examples = {"pelton fleet rollouts"},
          .run = rollouts};
}

cli::Verb rollout_verb() {
  return {.name = "fleet rollout",
          .summary = "Shows one roll-out, or pauses, resumes, promotes or takes it back.",
          .about =
              "pause: the share stays. resume: on by its gates. promote: the next step at once.\n"
              "rollback: its arm gets nothing more. Where several gateways share an etcd, a pause\n"
              "and a rollback at one of them hold for all.",
          .positionals = {{.name = "NAME", .help = "its 'name', as `fleet rollouts` shows it"},
                          {.name = "COMMAND",
                           .help = "what becomes of it; without it is shown only",
                           .required = false,
                           .choices = {"pause", "resume", "promote", "rollback"}}},
          .flags = {admin_flag(), json_flag()},
          .examples = {"pelton fleet rollout v2", "pelton fleet rollout v2 rollback"},
          .run = rollout};
}

cli::Verb limits_verb() {
  return {.name = "fleet limits",
          .summary = "Shows keys' limits, a gateway's part of them and what is left.",
          .about =
              "WHOLE: what the key may ask for. HERE: this gateway's part of it, where\n"
              "several share it. LEFT: of that, just now. KEY: the first digits of the\n"
              "key's SHA-256.",
          .flags = {admin_flag(),
                    {.name = "--tenant", .value = "NAME", .help = "this one's keys only"},
                    {.name = "--json",
                     .help = "all that is known, as JSON",
                     .kind = Flag::Kind::kSwitch}},
          .examples = {"pelton fleet limits", "pelton fleet limits --tenant acme"},
          .run = limits};
}

Result<void> set_role(const cli::Arguments& arguments) {
  TRY(ask(arguments, "POST", path_of(arguments) + "/role?role=" + arguments.text("ROLE")));
  return write_output(
      fmt::format("{}: role {}, done\n", arguments.text("NAME"), arguments.text("ROLE")));
}

Result<void> erase(const cli::Arguments& arguments) {
  std::string path = "/v1/reset_prefix_cache";
  if (arguments.has("--tenant")) {
    path = "/v1/erase_tenant?tenant=" + net::percent_encode(arguments.text("--tenant"));
  }
  TRY(ask(arguments, "POST", path, {}, kErasedMax));
  return write_output("erased at all workers\n");
}

cli::Verb erase_verb() {
  return {
      .name = "fleet erase",
      .summary = "Makes all workers forget what they have computed, or all of one tenant's.",
      .about =
          "Nothing of it is found any more on the device, on the host, on a disk or at a\n"
          "peer. Of one tenant also stored responses, files, batches and the keys that they\n"
          "were encrypted with are erased. Fails where a worker has not done it, and says why:\n"
          "what one that does not answer keeps on a disk is erased by pelton kv erase and pelton\n"
          "store erase. What is computed or answered just then may be found afterwards.",
      .flags = {admin_flag(),
                {.name = "--tenant",
                 .value = "NAME",
                 .help = "this one's only, and all that is kept of it"}},
      .exclusive = {{"--tenant"}},
      .examples = {"pelton fleet erase --tenant acme"},
      .run = erase};
}

cli::Verb role_verb() {
  return {.name = "fleet role",
          .summary = "Makes a worker compute prompts, go on with answers, or both.",
          .about =
              "For pools that split requests. It gets no new requests until those that it has\n"
              "are over, and then those of its role, until it or the gateway starts anew (serve\n"
              "--fleet-role). Each gateway needs the command.",
          .positionals = {name_positional(),
                          {.name = "ROLE",
                           .help = "what it is for from then on",
                           .choices = {"prefill", "decode", "both"}}},
          .flags = {admin_flag()},
          .examples = {"pelton fleet role gpu-7 decode"},
          .run = set_role};
}

cli::Verb command_verb(std::string word, std::string summary) {
  return {
      .name = "fleet " + word,
      .summary = std::move(summary),
      .about =
          "Of this gateway alone: where there are several, each has a word of its own (--admin).",
      .positionals = {name_positional()},
      .flags = {admin_flag()},
      .examples = {fmt::format("pelton fleet {} gpu-7", word)},
      .run = [word](const cli::Arguments& arguments) -> Result<void> {
        TRY(ask(arguments, "POST", path_of(arguments) + "/" + word));
        return write_output(fmt::format("{}: {}, done\n", arguments.text("NAME"), word));
      }};
}

cli::Verb config_get_verb() {
  return {.name = "fleet config get",
          .summary = "Prints a gateway's configuration file, and its ETag on stderr.",
          .flags = {admin_flag()},
          .examples = {"pelton fleet config get > gateway.toml"},
          .run = config_get};
}

cli::Verb config_put_verb() {
  return {.name = "fleet config put",
          .summary = "Replaces a gateway's configuration file; it is in force at once.",
          .about = "A file that is wrong changes nothing.",
          .positionals = {{.name = "FILE", .help = "the new one; - for stdin"}},
          .flags = {admin_flag(),
                    {.name = "--if-match",
                     .value = "ETAG",
                     .help = "only if it is still the one that `config get` showed"}},
          .examples = {"pelton fleet config put gateway.toml"},
          .run = config_put};
}

}  // namespace

std::vector<cli::Verb> fleet_verbs() {
  std::vector<cli::Verb> verbs;
  verbs.push_back({.name = "fleet ls",
                   .summary = "Lists a gateway's workers and their states.",
                   .flags = {admin_flag(),
                             {.name = "--json",
                              .help = "a JSON array instead of a table",
                              .kind = Flag::Kind::kSwitch}},
                   .examples = {"pelton fleet ls", "pelton fleet ls --admin http://10.0.0.2:8091"},
                   .run = list});
  verbs.push_back({.name = "fleet show",
                   .summary = "Shows all that a gateway knows of one worker, as JSON.",
                   .positionals = {name_positional()},
                   .flags = {admin_flag()},
                   .examples = {"pelton fleet show gpu-7"},
                   .run = show});
  verbs.push_back(limits_verb());
  verbs.push_back(
      {.name = "fleet explain",
       .summary = "Says where a request would go and why; sends it to nobody.",
       .about =
           "Each worker of its model's pool with the terms of its cost, in milliseconds; the star\n"
           "is where it would go. HIT: prompt tokens in its prefix cache. TTFT: predicted time to\n"
           "first token (network, queue, prefill, a step). DECODE: predicted time of the output\n"
           "tokens behind the first. BIAS: measured over predicted lately, of the term before it.\n"
           "INTERFERENCE: by how much it slows the requests that run and wait there. KV_PRESSURE:\n"
           "grows as the KV cache fills. COST = TTFT x BIAS + DECODE x BIAS + INTERFERENCE +\n"
           "KV_PRESSURE.",
       .positionals = {{.name = "BODY", .help = "a file with the request's body; - for stdin"}},
       .flags = {admin_flag(),
                 {.name = "--path",
                  .value = "PATH",
                  .help = "the endpoint that it is for",
                  .default_text = "/v1/chat/completions"},
                 {.name = "--json",
                  .help = "all that is known, as JSON",
                  .kind = Flag::Kind::kSwitch}},
       .examples = {"pelton fleet explain body.json",
                    "pelton fleet explain --path /v1/completions - < body.json"},
       .run = explain});
  verbs.push_back(config_get_verb());
  verbs.push_back(config_put_verb());
  for (cli::Verb& verb : fleet_apply_verbs()) verbs.push_back(std::move(verb));
  verbs.push_back(rollouts_verb());
  verbs.push_back(rollout_verb());
  verbs.push_back(role_verb());
  verbs.push_back(erase_verb());
  verbs.push_back(fleet_stage_verb());
  verbs.push_back(fleet_init_verb());
  verbs.push_back(command_verb("drain", "Sends a worker no new requests; running ones end."));
  verbs.push_back(
      command_verb("move", "Sends a worker no new requests; running ones go on elsewhere."));
  verbs.push_back(command_verb("undrain", "Sends a drained worker requests again."));
  verbs.push_back(command_verb("eject", "Keeps requests from a worker for a while."));
  verbs.push_back(command_verb("restore", "Ends a worker's ejection."));
  for (cli::Verb& verb : verbs) {
    const bool asks = std::ranges::find(verb.flags, "--admin", &Flag::name) != verb.flags.end();
    if (asks) verb.flags.push_back(admin_key_flag());
  }
  return verbs;
}

}  // namespace pelton::apps

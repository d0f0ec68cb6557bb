// pelton fleet apply, diff, get, patch, delete, history, revert: a gateway's configuration,
// declared by one file. What a file would change is asked of the gateway first, which reads it as
// it reads its own; what is put in force is put in the place of the very text that this was asked
// about (If-Match).
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/fleet_admin.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "base/utc_time.h"
#include "net/http_client.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::string_view kConfig = "/v1/config";
constexpr std::string_view kAll = "all";

// What would become of it, and of which text.
struct Plan {
  std::string etag;
  bool is_same = false;  // byte for byte
  Json answer;
};

Result<Plan> plan_of(const cli::Arguments& arguments, ConfigCall call) {
  TRY_ASSIGN(const net::HttpResponse now, config_call(arguments, {}));
  Plan plan{.etag = std::string(now.headers.get("ETag")), .is_same = call.body == now.body};
  if (arguments.knows("--if-match") && arguments.has("--if-match")) {
    plan.etag = arguments.text("--if-match");
  }
  call.path += "?dry_run=true";
  call.etag = plan.etag;
  TRY_ASSIGN(const net::HttpResponse response, config_call(arguments, std::move(call)));
  TRY_ASSIGN(plan.answer, Json::parse(response.body));
  plan.is_same = plan.answer.boolean("same").value_or(plan.is_same);
  const Json* changes = plan.answer.find("changes");
  if (changes == nullptr || !changes->is_array()) {
    return Error{ErrorCode::kIo, "no gateway that plans changes answers there"};
  }
  return plan;
}

std::string change_line(const Json& change) {
  const auto text = [&](std::string_view key) { return change.string(key).value_or(""); };
  const std::string how = text("change");
  const std::string name = text("name");
  const std::string value = text("value");
  return fmt::format("{} {}{}{}{}{}\n",
                     how == "added"     ? '+'
                     : how == "removed" ? '-'
                                        : '~',
                     text("kind"), name.empty() ? "" : " ", name, value.empty() ? "" : ": ", value);
}

std::string plan_text(const Plan& plan) {
  std::string text;
  for (const Json& change : plan.answer.find("changes")->as_array()) text += change_line(change);
  if (text.empty()) {
    return plan.is_same ? "nothing to change\n" : "nothing to change but the file's own text\n";
  }
  const Json* kept = plan.answer.find("takes_new_start");
  if (kept == nullptr || !kept->is_array() || kept->as_array().empty()) return text;
  std::vector<std::string> keys;
  for (const Json& key : kept->as_array()) {
    if (key.is_string()) keys.push_back(key.as_string());
  }
  return text + fmt::format("in force with a new start only: {}\n", fmt::join(keys, ", "));
}

Result<void> show(const cli::Arguments& arguments, const Plan& plan) {
  if (!arguments.has("--json")) return write_text(plan_text(plan));
  return write_output(plan.answer.dump() + "\n");
}

std::vector<std::string> removed_by(const Plan& plan) {
  std::vector<std::string> gone;
  for (const Json& change : plan.answer.find("changes")->as_array()) {
    if (change.string("change") != std::optional<std::string>("removed")) continue;
    gone.push_back(change.string("kind").value_or("") + " " + change.string("name").value_or(""));
  }
  return gone;
}

// Shown, and then done unless it is only to be shown.
Result<void> carry_out(const cli::Arguments& arguments, const Plan& plan, ConfigCall call) {
  TRY(show(arguments, plan));
  if (arguments.has("--dry-run")) return {};
  call.etag = plan.etag;
  TRY_ASSIGN(const net::HttpResponse answer, config_call(arguments, std::move(call)));
  fmt::print(stderr, "in force: {}\n", answer.headers.get("ETag"));
  return {};
}

Result<void> apply(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::string text, read_input(arguments.text("FILE")));
  ConfigCall call{.method = "PUT", .body = std::move(text)};
  TRY_ASSIGN(const Plan plan, plan_of(arguments, call));
  const std::vector<std::string> gone = removed_by(plan);
  if (!gone.empty() && !arguments.has("--prune")) {
    TRY(show(arguments, plan));
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the file lacks what is there: {}; nothing was changed. --prune takes "
                             "it away",
                             fmt::join(gone, ", ")),
                 "prune"};
  }
  // The same text may still not be in force, where its last reading failed.
  const bool is_in_force = plan.answer.find("changes")->as_array().empty();
  if (plan.is_same && is_in_force) return show(arguments, plan);
  return carry_out(arguments, plan, std::move(call));
}

Result<void> diff(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::string text, read_input(arguments.text("FILE")));
  TRY_ASSIGN(const Plan plan, plan_of(arguments, {.method = "PUT", .body = std::move(text)}));
  return show(arguments, plan);
}

std::string object_path(const cli::Arguments& arguments) {
  std::string path(kConfig);
  if (!arguments.has("KIND") || arguments.text("KIND") == kAll) return path;
  for (const char* const word : {"KIND", "NAME"}) {
    if (arguments.has(word)) path += "/" + net::percent_encode(arguments.text(word));
  }
  return path;
}

Result<void> get(const cli::Arguments& arguments) {
  std::string path = object_path(arguments);
  if (arguments.has("--json")) path += "?form=json";
  TRY_ASSIGN(const net::HttpResponse answer, config_call(arguments, {.path = std::move(path)}));
  fmt::print(stderr, "{}\n", answer.headers.get("ETag"));
  return write_output(arguments.has("--json") ? answer.body + "\n" : answer.body);
}

Result<void> patch(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::string text, read_input(arguments.text("FILE")));
  ConfigCall call{.method = "PATCH", .path = object_path(arguments), .body = std::move(text)};
  TRY_ASSIGN(const Plan plan, plan_of(arguments, call));
  if (plan.is_same) return show(arguments, plan);
  return carry_out(arguments, plan, std::move(call));
}

// "  12  2026-11-30T02:15:00.000Z  ann  ~ pool box: scale.max = 2 -> 4 (and 3 more)".
std::string history_line(const Json& entry) {
  const Json* changes = entry.find("changes");
  std::string what;
  if (changes != nullptr && changes->is_array() && !changes->as_array().empty()) {
    const Json::Array& all = changes->as_array();
    what = all.front().is_string() ? all.front().as_string() : "";
    if (all.size() > 1) what += fmt::format(" (and {} more)", all.size() - 1);
  }
  const int64_t reverts_to = entry.integer("reverts_to").value_or(0);
  if (reverts_to > 0) what = fmt::format("= {}{}{}", reverts_to, what.empty() ? "" : "; ", what);
  return fmt::format("{:>5}  {}  {:<20} {}\n", entry.integer("n").value_or(0),
                     base::utc_time(entry.integer("at").value_or(0)),
                     entry.string("who").value_or(""), what);
}

std::string history_path(const cli::Arguments& arguments) {
  std::string path = fmt::format("{}/history", kConfig);
  if (arguments.has("N")) path += "/" + arguments.text("N");
  return path;
}

Result<void> history(const cli::Arguments& arguments) {
  TRY_ASSIGN(const net::HttpResponse answer,
             config_call(arguments, {.path = history_path(arguments)}));
  if (arguments.has("N")) {
    fmt::print(stderr, "{}\n", answer.headers.get("ETag"));
    return write_output(answer.body);
  }
  if (arguments.has("--json")) return write_output(answer.body + "\n");
  TRY_ASSIGN(const Json json, Json::parse(answer.body));
  const Json* entries = json.find("entries");
  if (entries == nullptr || !entries->is_array()) {
    return Error{ErrorCode::kIo, "no gateway that keeps a history answers there"};
  }
  std::string text;
  for (const Json& entry : entries->as_array()) text += history_line(entry);
  return write_text(text);
}

Result<void> revert(const cli::Arguments& arguments) {
  ConfigCall call{.method = "POST", .path = history_path(arguments) + "/revert"};
  TRY_ASSIGN(const Plan plan, plan_of(arguments, call));
  if (plan.is_same) return show(arguments, plan);
  return carry_out(arguments, plan, std::move(call));
}

Result<void> remove(const cli::Arguments& arguments) {
  ConfigCall call{.method = "DELETE", .path = object_path(arguments)};
  TRY_ASSIGN(const Plan plan, plan_of(arguments, call));
  return carry_out(arguments, plan, std::move(call));
}

std::vector<std::string> kinds() {
  return {"pool",    "route",      "tenant", "worker",     "region",
          "gateway", "autoscaler", "etcd",   "kubernetes", "zones"};
}

// And what is read only: files beside the configuration's.
std::vector<std::string> kinds_that_are_read() {
  std::vector<std::string> all = kinds();
  for (const std::string_view one : {std::string_view("capacity"), std::string_view("chain"), kAll})
    all.emplace_back(one);
  return all;
}

Flag plan_json_flag() {
  return {.name = "--json",
          .help = "the changes as JSON, with what the file comes to",
          .kind = Flag::Kind::kSwitch};
}

Flag dry_run_flag() {
  return {
      .name = "--dry-run", .help = "only show what would be changed", .kind = Flag::Kind::kSwitch};
}

Flag if_match_flag() {
  return {.name = "--if-match",
          .value = "ETAG",
          .help = "only if the gateway's file is still the one that `fleet get` showed"};
}

cli::Positional file_positional() {
  return {.name = "FILE",
          .help = "the whole configuration, as docs/gateway.md has it; - for stdin"};
}

cli::Verb patch_verb() {
  return {
      .name = "fleet patch",
      .summary = "Changes single keys of a gateway's configuration.",
      .about =
          "FILE is a merge patch of JSON (RFC 7396): what it names is set, null takes it away, "
          "and\n"
          "all else stays, comments too. Without KIND it is of the whole configuration, as fleet\n"
          "get all --json shows it; with KIND and NAME of that object. Lists are replaced whole.",
      .positionals = {{.name = "FILE", .help = "the patch; - for stdin"},
                      {.name = "KIND", .help = "of what", .required = false, .choices = kinds()},
                      {.name = "NAME",
                       .help = "as for fleet get; none, where there is one of that kind",
                       .required = false}},
      .flags = {admin_flag(), dry_run_flag(), if_match_flag(), plan_json_flag()},
      .examples = {"echo '{\"scale\": {\"max\": 4}}' | pelton fleet patch - pool box"},
      .run = patch};
}

cli::Verb history_verb() {
  return {.name = "fleet history",
          .summary = "Lists what a gateway's configuration was, or prints one of these.",
          .about =
              "The last hundred texts of its file, each with who changed what; \"= 3\" says\n"
              "that it is number 3 again.",
          .positionals = {{.name = "N",
                           .help = "a number: print that text, with its ETag on stderr",
                           .required = false}},
          .flags = {admin_flag(),
                    {.name = "--json",
                     .help = "all that is known, as JSON",
                     .kind = Flag::Kind::kSwitch}},
          .examples = {"pelton fleet history", "pelton fleet history 3 > gateway.toml"},
          .run = history};
}

cli::Verb revert_verb() {
  return {.name = "fleet revert",
          .summary = "Puts an earlier configuration in force, and shows what that changes.",
          .about =
              "Byte for byte, as a new number of the history. It is checked as any other: what\n"
              "names a file that is gone changes nothing.",
          .positionals = {{.name = "N", .help = "its number, as fleet history shows it"}},
          .flags = {admin_flag(), dry_run_flag(), if_match_flag(), plan_json_flag()},
          .examples = {"pelton fleet revert 3 --dry-run", "pelton fleet revert 3"},
          .run = revert};
}

}  // namespace

std::vector<cli::Verb> fleet_apply_verbs() {
  std::vector<cli::Verb> verbs;
  verbs.push_back(
      {.name = "fleet apply",
       .summary = "Puts a configuration in force, and shows what it changes.",
       .about =
           "The gateway reads FILE as it reads its own and says what is added (+), removed (-)\n"
           "and changed (~); then FILE takes its file's place, byte for byte. Nothing is changed\n"
           "if FILE is wrong, if it lacks a pool, route, worker, tenant or region that is there\n"
           "(--prune takes these away), or if somebody changes the file meanwhile.",
       .positionals = {file_positional()},
       .flags = {admin_flag(),
                 dry_run_flag(),
                 {.name = "--prune",
                  .help = "take away what FILE lacks",
                  .kind = Flag::Kind::kSwitch},
                 if_match_flag(),
                 plan_json_flag()},
       .examples = {"pelton fleet apply gateway.toml", "pelton fleet apply gateway.toml --dry-run"},
       .run = apply});
  verbs.push_back({.name = "fleet diff",
                   .summary = "Shows what a configuration would change.",
                   .about = "What fleet apply would do, which nothing is done of.",
                   .positionals = {file_positional()},
                   .flags = {admin_flag(), plan_json_flag()},
                   .examples = {"pelton fleet diff gateway.toml"},
                   .run = diff});
  verbs.push_back(
      {.name = "fleet get",
       .summary = "Prints a gateway's configuration, or one object of it.",
       .about = "As it stands in the file, comments too, with the file's ETag on stderr.",
       .positionals = {{.name = "KIND",
                        .help = "of what; all: the whole file; capacity and chain: the files "
                                "that the gateway is given beside it",
                        .choices = kinds_that_are_read()},
                       {.name = "NAME",
                        .help = "a name, a worker's URL, a route's MODEL or MODEL/TENANT; without "
                                "it all of that kind",
                        .required = false}},
       .flags = {admin_flag(),
                 {.name = "--json",
                  .help = "what it says as JSON, as fleet patch changes it",
                  .kind = Flag::Kind::kSwitch}},
       .examples = {"pelton fleet get all > gateway.toml", "pelton fleet get pool box"},
       .run = get});
  verbs.push_back(
      {.name = "fleet delete",
       .summary = "Takes one object out of a gateway's configuration.",
       .about = "All else in its file stays as it is. What would not be a configuration any more\n"
                "(a pool that has workers) changes nothing.",
       .positionals = {{.name = "KIND", .help = "of what", .choices = kinds()},
                       {.name = "NAME",
                        .help = "as for fleet get; none, where there is one of that kind",
                        .required = false}},
       .flags = {admin_flag(), dry_run_flag(), plan_json_flag()},
       .examples = {"pelton fleet delete worker http://10.0.0.7:9000"},
       .run = remove});
  verbs.push_back(patch_verb());
  verbs.push_back(history_verb());
  verbs.push_back(revert_verb());
  return verbs;
}

}  // namespace pelton::apps

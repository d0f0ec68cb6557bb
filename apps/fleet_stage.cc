// pelton fleet stage: a merge patch of gateways' configurations, region by region. One region's
// gateways take it and are watched (gateway/staged_change.h); only when all was well there do the
// next ones. What was bad is taken back, in each gateway's own history, with the reason.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/fleet_admin.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/interrupt.h"
#include "gateway/staged_change.h"
#include "net/http_client.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using gateway::LostAnswer;
using gateway::StagedChange;
using gateway::StagedFigures;

constexpr std::string_view kConfig = "/v1/config";
constexpr std::chrono::milliseconds kLook{500};

// One gateway of a region, and what this run has done there.
struct Stop {
  std::string region;
  std::string url;
  std::string etag = {};  // of the text before, and of what was put there afterwards
  std::string etag_before = {};
  std::string etag_planned = {};  // of the text that the patch makes
  int64_t number_before = 0;      // in its history
  bool changes = false;           // the patch makes another text of its file
  bool is_changed = false;
  bool is_unsure = false;  // whether it is: its answer was lost, and it was not there so far
};

// Whoever asks: the flags' values, in words of their own.
struct Staging {
  std::vector<Stop> stops;
  std::string patch;
  std::string key;
  int64_t watch_ns = 0;
  int64_t grace_ns = 0;
  double failed_max = 0;
};

Error bad_stop(std::string_view word, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("'--to' is REGION=URL; '{}' {}", word, what),
          "to"};
}

// In turn as they are named, those of a region together.
Result<std::vector<Stop>> stops_of(const std::vector<std::string>& words) {
  std::vector<Stop> stops;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) return bad_stop(word, "names no region");
    Stop stop{.region = word.substr(0, equals), .url = word.substr(equals + 1)};
    if (!net::make_http_call("GET", stop.url + "/").ok()) return bad_stop(word, "has no URL");
    if (std::ranges::find(stops, stop.url, &Stop::url) != stops.end()) {
      return bad_stop(word, "is there twice");
    }
    const bool is_known = std::ranges::find(stops, stop.region, &Stop::region) != stops.end();
    if (is_known && stops.back().region != stop.region) {
      return bad_stop(word, "is of a region that others stand behind already");
    }
    stops.push_back(std::move(stop));
  }
  if (stops.size() > 256) return bad_stop(words.back(), "is one too many: at most 256");
  return stops;
}

Result<net::HttpResponse> ask_stop(const Staging& staging, const Stop& stop, ConfigCall asked) {
  Result<net::HttpResponse> answer = config_call_at(stop.url, staging.key, std::move(asked));
  if (answer.ok()) return answer;
  Error error = answer.error();
  error.message = fmt::format("{} ({}): {}", stop.region, stop.url, error.message);
  return error;
}

Result<Json> ask_json(const Staging& staging, const Stop& stop, std::string path) {
  TRY_ASSIGN(const net::HttpResponse answer, ask_stop(staging, stop, {.path = std::move(path)}));
  return Json::parse(answer.body);
}

// Requests that are over, and those that failed, of "pelton_gateway_requests_total{...} 12".
void count_requests(std::string_view metrics, StagedFigures& figures) {
  constexpr std::string_view kName = "pelton_gateway_requests_total{";
  while (!metrics.empty()) {
    const size_t end = std::min(metrics.find('\n'), metrics.size());
    const std::string_view line = metrics.substr(0, end);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    const size_t space = line.rfind(' ');
    if (!line.starts_with(kName) || space == std::string_view::npos) continue;
    const std::string number(line.substr(space + 1));
    const auto count = static_cast<int64_t>(std::strtod(number.c_str(), nullptr));
    figures.requests += count;
    const bool failed = line.find("code_class=\"5xx\"") != std::string_view::npos ||
                        line.find("outcome=\"error\"") != std::string_view::npos;
    if (failed) figures.failed += count;
  }
}

Result<StagedFigures> figures_of(const Staging& staging, const Stop& stop) {
  StagedFigures figures;
  TRY_ASSIGN(const net::HttpResponse metrics, ask_stop(staging, stop, {.path = "/metrics"}));
  count_requests(metrics.body, figures);
  TRY_ASSIGN(const Json workers, ask_json(staging, stop, "/v1/workers"));
  const Json* const rows = workers.find("workers");
  if (rows != nullptr && rows->is_array()) {
    for (const Json& row : rows->as_array()) {
      const bool is_region = row.string("kind") == std::optional<std::string>("region");
      if (is_region || row.string("state") != std::optional<std::string>("ready")) continue;
      figures.pools_ready.insert(row.string("pool").value_or(""));
    }
  }
  TRY_ASSIGN(const Json state, ask_json(staging, stop, "/v1/config/state"));
  figures.error = state.string("error").value_or("");
  TRY_ASSIGN(const net::HttpResponse file, ask_stop(staging, stop, {}));
  figures.etag = std::string(file.headers.get("ETag"));
  return figures;
}

// Whether it is that region's, what the patch would do there; nothing is changed.
Result<void> plan_stop(const Staging& staging, Stop& stop) {
  TRY_ASSIGN(const Json own, ask_json(staging, stop, "/v1/config/gateway?form=json"));
  const std::string region = own.string("region").value_or("");
  if (region != stop.region) {
    return bad_stop(
        fmt::format("{}={}", stop.region, stop.url),
        region.empty() ? "has no region in its file" : fmt::format("is a gateway of '{}'", region));
  }
  TRY_ASSIGN(const Json history, ask_json(staging, stop, "/v1/config/history"));
  const Json* const entries = history.find("entries");
  if (entries == nullptr || !entries->is_array() || entries->as_array().empty()) {
    return Error{ErrorCode::kIo, fmt::format("{} keeps no history", stop.url), {}};
  }
  const Json& last = entries->as_array().back();
  stop.number_before = last.integer("n").value_or(0);
  stop.etag = stop.etag_before = last.string("etag").value_or("");
  // Dry, of the very text that there is a way back to.
  TRY_ASSIGN(const net::HttpResponse planned,
             ask_stop(staging, stop,
                      {.method = "PATCH",
                       .path = fmt::format("{}?dry_run=true", kConfig),
                       .body = staging.patch,
                       .etag = stop.etag}));
  TRY_ASSIGN(const Json answer, Json::parse(planned.body));
  stop.changes = !answer.boolean("same").value_or(false);
  stop.etag_planned = answer.string("etag").value_or("");
  if (answer.boolean("writable").value_or(true)) return {};
  return Error{ErrorCode::kIo, fmt::format("{} may not write its file", stop.url), {}};
}

// As the header takes it.
std::string plain(std::string text) {
  constexpr size_t kMax = 400;
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.substr(0, kMax);
}

std::string etag_at(const Staging& staging, const Stop& stop) {
  const auto file = ask_stop(staging, stop, {});
  return file.ok() ? std::string(file->headers.get("ETag")) : std::string();
}

// The patch went out, and nobody has said what became of it.
Result<void> find_lost(const Staging& staging, Stop& stop, const std::string& trouble,
                       const base::Clock& clock) {
  fmt::print(stderr, "{} {}: no answer ({}); its file is read\n", stop.region, stop.url, trouble);
  const int64_t end_ns = clock.now_ns() + staging.grace_ns;
  for (;;) {
    const std::string now = etag_at(staging, stop);
    const LostAnswer found =
        gateway::lost_answer(now, stop.etag, stop.etag_planned, clock.now_ns() >= end_ns);
    if (found == LostAnswer::kThere) {
      stop.etag = now;
      stop.is_changed = true;
      return {};
    }
    if (found == LostAnswer::kWait) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    // It may still arrive: if it has, take_back() knows it by its ETag.
    stop.etag = stop.etag_planned;
    stop.is_unsure = found == LostAnswer::kUnsure;
    return Error{ErrorCode::kIo,
                 fmt::format("{} ({}): {}, and {}", stop.region, stop.url, trouble,
                             found == LostAnswer::kAway ? "somebody else has changed the file"
                                                        : "its file does not have the change"),
                 {}};
  }
}

Result<void> put_patch(const Staging& staging, Stop& stop, const base::Clock& clock) {
  constexpr int kServerErrors = 500;  // as of a proxy that has lost the gateway
  const Result<net::HttpResponse> answer = config_answer_at(
      stop.url, staging.key,
      {.method = "PATCH",
       .body = staging.patch,
       .etag = stop.etag,
       .why = plain(fmt::format("staged, {} first", staging.stops.front().region))});
  if (!answer.ok()) return find_lost(staging, stop, answer.error().message, clock);
  if (answer->status >= kServerErrors) {
    return find_lost(staging, stop, config_refused(*answer).message, clock);
  }
  if (answer->status != 200) {
    Error error = config_refused(*answer);
    error.message = fmt::format("{} ({}): {}", stop.region, stop.url, error.message);
    return error;
  }
  stop.etag = std::string(answer->headers.get("ETag"));
  stop.is_changed = true;
  return {};
}

// The last one first. What somebody else has written meanwhile stays, and is said.
bool take_back(Staging& staging, const std::string& reason) {
  bool all = true;
  for (auto stop = staging.stops.rbegin(); stop != staging.stops.rend(); ++stop) {
    if (!stop->is_changed && !stop->is_unsure) continue;
    const auto done =
        ask_stop(staging, *stop,
                 {.method = "POST",
                  .path = fmt::format("{}/history/{}/revert", kConfig, stop->number_before),
                  .etag = stop->etag,
                  .why = plain("taken back: " + reason)});
    // Its answer may be lost, too.
    if (done.ok() || etag_at(staging, *stop) == stop->etag_before) {
      const bool may_come = stop->is_unsure && !done.ok();
      stop->is_changed = stop->is_unsure = false;
      fmt::print(stderr, "taken back: {} {}{}\n", stop->region, stop->url,
                 may_come ? " (the change was never there; look again, should it be late)" : "");
    } else {
      all = false;
      fmt::print(stderr, "NOT taken back: {}\n", done.error().message);
    }
  }
  return all;
}

struct Watched {
  Stop* stop = nullptr;
  StagedChange change;
};

// Until all of them are good; an error says which one is not, and why.
Result<void> watch_stops(const Staging& staging, std::vector<Watched>& all,
                         const cli::Interrupt& interrupt, const base::Clock& clock) {
  const auto failed = [](const Watched& one) {
    return Error{ErrorCode::kIo,
                 fmt::format("{} ({}): {}", one.stop->region, one.stop->url, one.change.reason()),
                 {}};
  };
  for (;;) {
    if (interrupt.pending()) return Error{ErrorCode::kIo, "it was broken off", {}};
    bool is_good = true;
    for (Watched& one : all) {
      const Result<StagedFigures> now = figures_of(staging, *one.stop);
      const StagedChange::Verdict verdict =
          now.ok() ? one.change.note(*now, clock.now_ns())
                   : one.change.note_silent(now.error().message, clock.now_ns());
      const bool is_bad =
          verdict == StagedChange::Verdict::kBad || verdict == StagedChange::Verdict::kOthers;
      if (is_bad) return failed(one);
      is_good = is_good && verdict == StagedChange::Verdict::kGood;
    }
    if (is_good) return {};
    std::this_thread::sleep_for(kLook);
  }
}

// The gateways of one region, together.
Result<void> stage_region(Staging& staging, size_t first, size_t end,
                          const cli::Interrupt& interrupt, const base::Clock& clock) {
  std::vector<Watched> watched;
  for (size_t i = first; i < end; ++i) {
    Stop& stop = staging.stops[i];
    if (!stop.changes) continue;
    TRY_ASSIGN(StagedFigures before, figures_of(staging, stop));
    TRY(put_patch(staging, stop, clock));
    const StagedChange::Rules rules{.watch_ns = staging.watch_ns,
                                    .grace_ns = staging.grace_ns,
                                    .failed_max = staging.failed_max,
                                    .etag = stop.etag};
    watched.push_back({&stop, StagedChange(rules, std::move(before), clock.now_ns())});
  }
  fmt::print(stderr, "{}: {} of {} gateways have it\n", staging.stops[first].region, watched.size(),
             end - first);
  TRY(watch_stops(staging, watched, interrupt, clock));
  fmt::print("{}: good\n", staging.stops[first].region);
  std::fflush(stdout);
  return {};
}

Result<void> stage_all(Staging& staging, const cli::Interrupt& interrupt,
                       const base::Clock& clock) {
  for (size_t first = 0; first < staging.stops.size();) {
    size_t end = first + 1;
    while (end < staging.stops.size() && staging.stops[end].region == staging.stops[first].region) {
      ++end;
    }
    TRY(stage_region(staging, first, end, interrupt, clock));
    first = end;
  }
  return {};
}

Result<void> run_fleet_stage(const cli::Arguments& arguments) {
  Staging staging;
  TRY_ASSIGN(staging.stops, stops_of(arguments.list("--to")));
  TRY_ASSIGN(staging.patch, read_input(arguments.text("FILE")));
  TRY_ASSIGN(staging.key, admin_key(arguments));
  staging.watch_ns = static_cast<int64_t>(arguments.number("--watch") * 1e9);
  staging.grace_ns = static_cast<int64_t>(arguments.number("--grace") * 1e9);
  staging.failed_max = arguments.number("--failed-max") / 100;
  // All are asked before any is changed: a patch that one of them refuses changes nothing.
  for (Stop& stop : staging.stops) TRY(plan_stop(staging, stop));
  for (const Stop& stop : staging.stops) {
    fmt::print("{} {}: {}\n", stop.region, stop.url,
               stop.changes ? "would change" : "nothing to change");
  }
  std::fflush(stdout);
  if (arguments.has("--dry-run")) return {};
  cli::Interrupt interrupt;
  const base::SystemClock clock;
  const Result<void> done = stage_all(staging, interrupt, clock);
  if (done.ok()) return {};
  interrupt.ignore_further();
  const bool all = take_back(staging, done.error().message);
  return Error{
      ErrorCode::kIo,
      fmt::format("{}. {}", done.error().message,
                  all ? "All is as it was before" : "Not all is as it was before: see above"),
      {}};
}

}  // namespace

cli::Verb fleet_stage_verb() {
  return {
      .name = "fleet stage",
      .summary = "Changes gateways' configurations region by region, and takes back what is bad.",
      .about =
          "FILE is a merge patch, as fleet patch takes it. All gateways named by --to are asked\n"
          "first what it would change; then those of the first region take it and are watched,\n"
          "and only if all was well the next region's are changed. It is bad where requests fail,\n"
          "where a pool has no worker any more, or where the gateway has not taken it: then each\n"
          "gateway gets its own text of before, and the reason stands in its history and audit\n"
          "log. Ctrl-C takes it back, too.",
      .positionals = {{.name = "FILE", .help = "the patch; - for stdin"}},
      .flags = {{.name = "--to",
                 .value = "REGION=URL",
                 .help = "a region and the admin listener of one of its gateways; again for each, "
                         "in the order in which they take it",
                 .required = true,
                 .many = true},
                {.name = "--watch",
                 .value = "SECONDS",
                 .help = "how long a region is watched before the next one takes it",
                 .kind = Flag::Kind::kNumber,
                 .default_text = "60",
                 .most = 86400},
                {.name = "--grace",
                 .value = "SECONDS",
                 .help = "how long a pool may be without workers, and a gateway without an answer",
                 .kind = Flag::Kind::kNumber,
                 .default_text = "10",
                 .most = 3600},
                {.name = "--failed-max",
                 .value = "PERCENT",
                 .help = "how many of a gateway's requests may fail while it is watched; from "
                         "five failures on",
                 .kind = Flag::Kind::kNumber,
                 .default_text = "2",
                 .most = 100},
                {.name = "--dry-run",
                 .help = "only say which gateways it would change",
                 .kind = Flag::Kind::kSwitch},
                admin_key_flag()},
      .examples = {"pelton fleet stage patch.json --to eu=http://10.1.0.1:8091 --to "
                   "us=http://10.2.0.1:8091"},
      .run = run_fleet_stage};
}

}  // namespace pelton::apps

#include "apps/gateway_reload.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/audit_chain.h"
#include "access/audited_exchange.h"
#include "api/error.h"
#include "apps/version.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/private_file.h"
#include "base/sync_path.h"
#include "gateway/config_changes.h"
#include "gateway/config_edit.h"
#include "gateway/config_json.h"
#include "gateway/config_patch.h"
#include "gateway/config_text.h"
#include "gateway/fixed_pools.h"
#include "net/json_response.h"
#include "net/query_check.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

constexpr std::chrono::milliseconds kLook{1'000};
constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr size_t kKeysBytesMax = size_t{1} << 24;
constexpr std::string_view kFile = "/v1/config";
constexpr std::string_view kState = "/v1/config/state";
constexpr std::string_view kHistory = "/v1/config/history";
constexpr std::string_view kObjects = "/v1/config/";
constexpr std::string_view kMergePatch = "application/merge-patch+json";
constexpr std::string_view kDryRun = "dry_run";
constexpr std::string_view kWhyHeader = "x-pelton-why";
constexpr size_t kWhyMax = 400;  // characters
constexpr int kTriesMax = 3;     // of a patch whose file is another one each time
// Of what there is one.
constexpr std::array<std::string_view, 5> kTables = {"gateway", "autoscaler", "etcd", "kubernetes",
                                                     "zones"};

net::HttpResponse refusal(const api::ApiError& error) {
  return net::json_response(api::error_body(error), error.status);
}

std::string etag_of(std::string_view text) {
  return "\"" + base::sha256(text).substr(0, 32) + "\"";
}

api::ApiError changed_meanwhile() {
  return {.status = 412,
          .message = "the file has changed since it was read; read it again",
          .type = "invalid_request_error",
          .param = {},
          .code = "config_changed"};
}

// The operator's file is read-only here: as a service's that may write nowhere, or a ConfigMap.
// `file`: what would have to be written.
api::ApiError not_writable(const std::string& file, std::string_view why) {
  return {.status = 409,
          .message = fmt::format(
              "the configuration is right, but the gateway may not write its file {} ({}), so "
              "nothing was changed. Change the file itself, which is read anew within two seconds: "
              "as its owner on that machine, or in Kubernetes the ConfigMap with kubectl apply. To "
              "let the gateway write it: docs/operations.md, \"Installed as a service\"",
              file, why),
          .type = "invalid_request_error",
          .param = {},
          .code = "config_not_writable"};
}

api::ApiError bad_config(const Error& error) {
  return {.status = 400,
          .message = error.message,
          .type = "invalid_request_error",
          .param = error.field,
          .code = "bad_config"};
}

Error keys_gone() {
  return Error{ErrorCode::kBadConfig,
               "'keys_file' is gone; a gateway that asks for keys goes on asking until it is "
               "started anew",
               "keys_file"};
}

api::ApiError from_a_page() {
  return {.status = 403,
          .message =
              "pages in a browser (the header 'Origin') change no configuration; use pelton "
              "fleet apply",
          .type = "invalid_request_error",
          .param = {},
          .code = "forbidden_origin"};
}

constexpr std::string_view kHistoryField = "history";

// What is not as it was asked for, of one object.
api::ApiError bad_edit(const Error& error) {
  api::ApiError shown = bad_config(error);
  if (error.code == ErrorCode::kIo) return api::api_error(error);
  if (error.code == ErrorCode::kInvalidArgument) shown.code = "bad_object";
  if (error.code != ErrorCode::kNotFound) return shown;
  shown.status = 404;
  shown.code = error.field == kHistoryField ? "history_not_found" : "object_not_found";
  return shown;
}

api::ApiError no_merge_patch(std::string_view type) {
  return {.status = 415,
          .message = fmt::format("PATCH takes a merge patch of JSON (RFC 7396): Content-Type {}, "
                                 "not '{}'",
                                 kMergePatch, type.substr(0, 100)),
          .type = "invalid_request_error",
          .param = {},
          .code = "unsupported_patch"};
}

// "application/merge-patch+json; charset=utf-8" too.
bool is_merge_patch(const net::HttpRequest& request) {
  std::string_view type = request.headers.get("Content-Type");
  type = type.substr(0, type.find(';'));
  type = type.substr(0, type.find_last_not_of(" \t") + 1);
  return net::equals_without_case(type, kMergePatch);
}

// Whether a change is only tried out. A word that is none is refused: without it the change would
// be made.
Result<bool> only_tries(const net::HttpRequest& request) {
  TRY(net::check_query(request.query, {kDryRun}));
  const auto said = net::parse_query(request.query);
  const auto bad = [](std::string_view what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("'dry_run' {}", what),
                 std::string(kDryRun)};
  };
  if (said.size() > 1) return bad("is there twice");
  if (request.query.empty()) return false;
  const std::string_view value = said.empty() ? "" : std::string_view(said.front().second);
  if (value == "true" || value == "false") return value == "true";
  return bad("is true or false");
}

bool is_same(const Result<std::string>& one, const Result<std::string>& other) {
  return one.ok() == other.ok() && (!one.ok() || *one == *other);
}

// One line that is kept with a change, in printable ASCII.
Result<std::string_view> why_of(const net::HttpRequest& request) {
  const std::string_view why = request.headers.get(kWhyHeader);
  const bool is_plain = std::ranges::all_of(why, [](char c) { return c >= ' ' && c <= '~'; });
  if (is_plain && why.size() <= kWhyMax) return why;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is printable ASCII, {} characters at most", kWhyHeader, kWhyMax),
               std::string(kWhyHeader)};
}

void add_why(std::string_view why, std::vector<std::string>& lines) {
  if (!why.empty()) lines.push_back(fmt::format("why: {}", why));
}

// Of "/v1/config/history/N" and ".../N/revert".
struct HistoryPath {
  int64_t number = 0;  // 0: of the list
  bool is_revert = false;
};
std::optional<HistoryPath> history_path(std::string_view path) {
  if (path == kHistory) return HistoryPath{};
  path.remove_prefix(std::min(path.size(), kHistory.size() + 1));
  constexpr std::string_view kRevert = "/revert";
  HistoryPath asked{.is_revert = path.ends_with(kRevert)};
  if (asked.is_revert) path.remove_suffix(kRevert.size());
  const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), asked.number);
  if (error != std::errc() || end != path.data() + path.size() || asked.number < 1) {
    return std::nullopt;
  }
  return asked;
}

bool is_history(std::string_view path) {
  return path == kHistory || path.starts_with(fmt::format("{}/", kHistory));
}

// As Allow has them; empty: there is nothing at that path.
std::string_view methods_of(std::string_view path) {
  if (path == kFile) return "GET, HEAD, PUT, PATCH";
  if (path == kState) return "GET, HEAD";
  if (!is_history(path)) return "GET, HEAD, PUT, PATCH, DELETE";
  const std::optional<HistoryPath> asked = history_path(path);
  if (!asked) return {};
  return asked->is_revert ? "POST" : "GET, HEAD";
}

Error no_history(int64_t number) {
  return {ErrorCode::kNotFound, fmt::format("the history has no number {}", number),
          std::string(kHistoryField)};
}

Error no_object(const gateway::ConfigPlace& place) {
  return {ErrorCode::kNotFound, fmt::format("the file has no {} {}", place.kind, place.name),
          "name"};
}

// Of "/v1/config/pool/NAME", whose name may have slashes; none: there is no such kind.
std::optional<gateway::ConfigPlace> place_of(std::string_view path) {
  path.remove_prefix(kObjects.size());
  const size_t slash = std::min(path.find('/'), path.size());
  gateway::ConfigPlace place{.kind = std::string(path.substr(0, slash)),
                             .name = std::string(path.substr(std::min(slash + 1, path.size())))};
  const bool is_table = std::ranges::find(kTables, place.kind) != kTables.end();
  if (is_table ? !place.name.empty() : !gateway::is_config_list(place.kind)) return std::nullopt;
  return place;
}

void write_changes(base::JsonWriter& w, const std::vector<gateway::ConfigChange>& changes) {
  w.key("changes").begin_array();
  for (const gateway::ConfigChange& one : changes) {
    w.begin_object().key("change").string(gateway::how_name(one.how));
    w.key("kind").string(one.kind).key("name").string(one.name).key("value").string(one.value);
    w.end_object();
  }
  w.end_array();
}

std::vector<std::string> change_lines(std::string_view before, std::string_view after) {
  const auto changes = gateway::config_changes(before, after);
  if (!changes.ok()) return {"not to be named: " + changes.error().message};
  std::vector<std::string> lines;
  for (const gateway::ConfigChange& one : *changes) lines.push_back(change_text(one));
  return lines;
}

// Of each line of a file of keys the first digits of its key's SHA-256, and what it says more.
std::vector<std::string> keys_shown(const std::string& file) {
  constexpr size_t kDigits = 12;
  std::vector<std::string> shown;
  if (file.empty()) return shown;
  const Result<std::string> text = base::read_file(file, kKeysBytesMax);
  for (size_t begin = 0; text.ok() && begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string_view line = std::string_view(*text).substr(begin, end - begin);
    begin = end + 1;
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    const size_t over = std::min(line.find_first_of(" \t\r", first), line.size());
    std::string rest(line.substr(over));
    rest.resize(rest.find_last_not_of(" \t\r") + 1);
    shown.push_back(base::sha256(line.substr(first, over - first)).substr(0, kDigits) + rest);
  }
  std::ranges::sort(shown);
  return shown;
}

// What an audit line has room for; a digest that stands behind it must not be cut.
void leave_room_for_digest(std::vector<std::string>& detail) {
  constexpr size_t kRoom = access::AuditChain::kDetailMax - 256;
  size_t bytes = 0;
  for (size_t i = 0; i < detail.size(); ++i) {
    bytes += detail[i].size();
    if (bytes <= kRoom) continue;
    const size_t more = detail.size() - i;
    detail.resize(i);
    detail.push_back(fmt::format("and {} more", more));
    return;
  }
}

// "+ key 3fa1... acme rpm=5".
void add_changed_keys(const std::vector<std::string>& before, const std::vector<std::string>& after,
                      std::vector<std::string>& lines) {
  const auto add = [&](const char* mark, const std::vector<std::string>& some,
                       const std::vector<std::string>& others) {
    std::vector<std::string> only;
    std::ranges::set_difference(some, others, std::back_inserter(only));
    for (const std::string& one : only) lines.push_back(fmt::format("{} key {}", mark, one));
  };
  add("-", before, after);
  add("+", after, before);
}

}  // namespace

GatewayReload::GatewayReload(std::string file, const gateway::ConfigRules& rules,
                             const gateway::GatewayConfig& config, TextsByFile texts,
                             StartCheck check, gateway::Gateway& gateway, access::AdminGate& gate,
                             const base::Clock& clock, base::Log& log)
    : file_(std::move(file)),
      rules_(rules),
      check_(std::move(check)),
      gateway_(gateway),
      gate_(gate),
      clock_(clock),
      log_(log),
      texts_(std::move(texts)),
      history_(file_ + ".history"),
      keys_file_(config.keys_file),
      workers_file_(config.workers_file),
      read_(stamps()),
      seen_(read_),
      last_({.unix_ms = clock.unix_ms(), .why = "start", .error = {}, .takes_new_start = {}}),
      watcher_({.name = "pelton-reload", .interval = kLook}, [this] { look(); }) {
  std::lock_guard lock(mutex_);
  if (!history_.error().empty()) {
    log_.warning(
        fmt::format("the configuration's history is in memory only: {}", history_.error()));
  }
  // What was changed while there was no gateway is a number, too.
  if (const Result<std::string> text = base::read_file(file_, kConfigBytesMax); text.ok()) {
    history_.note({.unix_ms = clock.unix_ms(), .who = "start", .text = *text});
  }
}

GatewayReload::Stamp GatewayReload::stamp_of(const std::string& file) {
  struct stat status {};
  if (file.empty() || ::stat(file.c_str(), &status) != 0) return {};
  return {.inode = status.st_ino,
          .bytes = status.st_size,
          .changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void GatewayReload::look() {
  {
    std::lock_guard lock(mutex_);
    const Stamps now = stamps();
    const bool is_settled = now == std::exchange(seen_, now);
    if (!is_settled || now == read_ || now[0] == Stamp{}) return;
  }
  reload("its file has changed");
}

void GatewayReload::reload(std::string_view why) {
  std::lock_guard lock(mutex_);
  read_ = stamps();
  const std::string before = gateway_.effective_config();
  const Result<std::string> text = base::read_file(file_, kConfigBytesMax);
  const Result<void> done = text.ok() ? try_reload(*text, read_[0])
                                      : Error{ErrorCode::kBadConfig, text.error().message, {}};
  note(why, done);
  const Change change{
      .who = why,
      .from = {},
      .before = before,
      .error = done.ok() ? std::string_view() : std::string_view(done.error().message)};
  if (done.ok()) remember(*text, change);
  audit(change);
  if (done.ok()) return log_.info(fmt::format("{}: the configuration is read anew", why));
  gateway_.note_bad_reload();
  log_.error(fmt::format("{}: all stays as it was: {}", why, done.error().message));
}

std::vector<gateway::ConfigHistory::Entry> GatewayReload::changes_after(int64_t number) const {
  std::vector<gateway::ConfigHistory::Entry> changes;
  std::lock_guard lock(mutex_);
  for (const gateway::ConfigHistory::Entry& entry : history_.entries()) {
    if (entry.number <= number) continue;
    changes.push_back({.number = entry.number, .who = entry.who, .changes = entry.changes});
  }
  return changes;
}

int64_t GatewayReload::last_number() const {
  std::lock_guard lock(mutex_);
  return history_.entries().empty() ? 0 : history_.entries().back().number;
}

net::HttpResponse GatewayReload::answer(const net::HttpRequest& request, std::string_view who) {
  const std::string_view allowed = methods_of(request.path);
  if (allowed.empty()) return refusal(api::not_found(request.method, request.path));
  if (!net::header_list_contains(allowed, request.method)) {
    net::HttpResponse refused = refusal(api::method_not_allowed(request.method, request.path));
    refused.headers.add("Allow", std::string(allowed));
    return refused;
  }
  if (access::is_reading(request)) return read_page(request);
  if (!request.headers.get("Origin").empty()) {
    audit_refusal("", access::address_of(request), from_a_page());
    return refusal(from_a_page());
  }
  return replace(request, who);
}

net::HttpResponse GatewayReload::read_page(const net::HttpRequest& request) const {
  if (request.path == kState) return state();
  if (is_history(request.path)) return read_history(request.path);
  return request.path == kFile ? read(request) : read_objects(request);
}

// The list, or one text.
net::HttpResponse GatewayReload::read_history(std::string_view path) const {
  const int64_t number = history_path(path)->number;
  std::lock_guard lock(mutex_);
  if (number > 0) {
    const gateway::ConfigHistory::Entry* entry = history_.find(number);
    if (entry == nullptr) return refusal(bad_edit(no_history(number)));
    net::HttpResponse response{.status = 200, .headers = {}, .body = entry->text};
    response.headers.add("Content-Type", "application/toml");
    response.headers.add("ETag", etag_of(entry->text));
    return response;
  }
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("entries").begin_array();
  for (const gateway::ConfigHistory::Entry& entry : history_.entries()) {
    w.begin_object().key("n").integer(entry.number).key("at").integer(entry.unix_ms);
    w.key("who").string(entry.who).key("from").string(entry.from);
    w.key("reverts_to").integer(entry.reverts_to).key("etag").string(etag_of(entry.text));
    w.key("bytes").integer(static_cast<int64_t>(entry.text.size())).key("changes").begin_array();
    for (const std::string& change : entry.changes) w.string(change);
    w.end_array().end_object();
  }
  w.end_array().key("on_disk").boolean(history_.is_on_disk());
  w.key("error").string(history_.error()).end_object();
  return net::json_response(std::move(body));
}

// Those of a kind, or one, as they stand in the file.
net::HttpResponse GatewayReload::read_objects(const net::HttpRequest& request) const {
  const std::optional<gateway::ConfigPlace> place = place_of(request.path);
  if (!place) return refusal(api::not_found(request.method, request.path));
  const Result<std::string> text = base::read_file(file_, kConfigBytesMax);
  if (!text.ok()) return refusal(api::api_error(text.error()));
  const auto parts = gateway::config_parts(*text, file_);
  if (!parts.ok()) return refusal(bad_edit(parts.error()));
  if (net::query_value(request.query, "form") == "json") return read_json(*text, *place);
  net::HttpResponse response;
  for (const gateway::ConfigPart& part : *parts) {
    if (part.kind != place->kind || (!place->name.empty() && part.name != place->name)) continue;
    if (!response.body.empty()) response.body += "\n";
    response.body += gateway::own_text(part.text) + "\n";
  }
  if (response.body.empty() && !place->name.empty()) return refusal(bad_edit(no_object(*place)));
  response.headers.add("Content-Type", "application/toml");
  response.headers.add("ETag", etag_of(*text));
  return response;
}

// `place`: of which object or kind; an empty kind: of all.
net::HttpResponse GatewayReload::read_json(const std::string& text,
                                           const gateway::ConfigPlace& place) const {
  const Result<Json> all = gateway::config_json(text, file_);
  if (!all.ok()) return refusal(bad_edit(all.error()));
  const Json* found = place.kind.empty() ? &*all : all->find(place.kind);
  if (found != nullptr && !place.name.empty()) found = found->find(place.name);
  if (found == nullptr) return refusal(bad_edit(no_object(place)));
  net::HttpResponse response = net::json_response(found->dump());
  response.headers.add("ETag", etag_of(text));
  return response;
}

net::HttpResponse GatewayReload::read(const net::HttpRequest& request) const {
  const std::string form = net::query_value(request.query, "form").value_or("");
  net::HttpResponse response;
  response.headers.add("Content-Type", "application/toml");
  if (form == "effective") {
    response.body = gateway_.effective_config();
  } else if (form == "file") {
    const Result<gateway::GatewayConfig> config = gateway::read_gateway_config(file_, rules_);
    if (!config.ok()) return refusal(bad_config(config.error()));
    response.body = gateway::config_text(*config);
  } else if (!form.empty() && form != "json") {
    return refusal(api::api_error(
        Error{ErrorCode::kInvalidArgument, "'form' is effective, file or json", "form"}));
  } else {
    const Result<std::string> text = base::read_file(file_, kConfigBytesMax);
    if (!text.ok()) return refusal(api::api_error(text.error()));
    if (!form.empty()) return read_json(*text, {});
    response.body = *text;
    response.headers.add("ETag", etag_of(*text));
  }
  return response;
}

void GatewayReload::note(std::string_view why, const Result<void>& done) {
  last_.unix_ms = clock_.unix_ms();
  last_.why = why;
  last_.error = done.ok() ? "" : done.error().message;
}

// After it is in force.
void GatewayReload::remember(const std::string& text, const Change& change) {
  const bool was_on_disk = history_.is_on_disk();
  std::vector<std::string> lines;
  add_why(change.why, lines);
  for (std::string& line : change_lines(change.before, gateway_.effective_config())) {
    lines.push_back(std::move(line));
  }
  history_.note({.unix_ms = clock_.unix_ms(),
                 .who = std::string(change.who),
                 .from = std::string(change.from),
                 .reverts_to = change.reverts_to,
                 .text = text,
                 .changes = std::move(lines)});
  if (was_on_disk && !history_.is_on_disk()) {
    log_.warning(
        fmt::format("the configuration's history is in memory only: {}", history_.error()));
  }
}

// Of what is in force with all that its file leaves out: no key stands in it, only files that hold
// some. Its digest says, after a new start, whether it is the one that was in force before.
void GatewayReload::audit(const Change& change) {
  if (gateway_.audit() == nullptr) return;
  access::AuditEvent event{
      .who = std::string(change.who),
      .from = std::string(change.from),
      .what = "configure",
      .target = file_,
      .result = change.error.empty() ? "done" : fmt::format("refused: {}", change.error)};
  if (change.error.empty()) {
    const std::string after = gateway_.effective_config();
    if (change.reverts_to > 0) event.detail.push_back(fmt::format("= {}", change.reverts_to));
    add_why(change.why, event.detail);
    for (std::string& line : change_lines(change.before, after)) {
      event.detail.push_back(std::move(line));
    }
    std::vector<std::string> keys = keys_shown(keys_file_);
    add_changed_keys(keys_, keys, event.detail);
    keys_ = std::move(keys);
    leave_room_for_digest(event.detail);
    event.detail.push_back("config " + base::sha256(after));
  }
  gateway_.audit()->note(std::move(event));
}

void GatewayReload::audit_refusal(std::string_view who, std::string_view from,
                                  const api::ApiError& error) const {
  if (gateway_.audit() == nullptr) return;
  gateway_.audit()->note_often({.who = std::string(who),
                                .from = std::string(from),
                                .what = "configure",
                                .target = file_,
                                .result = fmt::format("refused: {} {}", error.status, error.code)});
}

void GatewayReload::audit_start() {
  if (gateway_.audit() == nullptr) return;
  std::lock_guard lock(mutex_);
  keys_ = keys_shown(keys_file_);
  gateway_.audit()->note({.what = "start",
                          .target = file_,
                          .result = fmt::format("version {}", kVersion),
                          .detail = {"config " + base::sha256(gateway_.effective_config())}});
}

net::HttpResponse GatewayReload::state() const {
  std::string body;
  base::JsonWriter w(body);
  std::lock_guard lock(mutex_);
  w.begin_object().key("file").string(file_).key("at").integer(last_.unix_ms);
  w.key("why").string(last_.why).key("error").string(last_.error);
  w.key("takes_new_start").begin_array();
  for (const std::string& key : last_.takes_new_start) w.string(key);
  w.end_array().end_object();
  return net::json_response(std::move(body));
}

// Nothing is written: a gateway that may not write reads as well.
net::HttpResponse GatewayReload::try_out(const std::string& text,
                                         const Result<std::string>& before) {
  const Result<Read> read = read_whole(text);
  if (!read.ok()) return refusal(bad_config(read.error()));
  std::string body;
  base::JsonWriter w(body);
  const std::string after = gateway::config_text(read->options.gateway.config);
  const auto changes = gateway::config_changes(gateway_.effective_config(), after);
  if (!changes.ok()) return refusal(bad_config(changes.error()));
  w.begin_object().key("same").boolean(before.ok() && *before == text);
  w.key("etag").string(etag_of(text)).key("file").string(after);
  write_changes(w, *changes);
  const std::vector<std::string_view> kept = gateway_.takes_new_start(read->options.gateway.config);
  w.key("takes_new_start").begin_array();
  for (const std::string_view key : kept) w.string(key);
  w.end_array().key("writable").boolean(is_writable()).end_object();
  return net::json_response(std::move(body));
}

// The whole file, as this request would have it.
Result<std::string> GatewayReload::text_asked(const net::HttpRequest& request,
                                              const Result<std::string>& before) const {
  if (request.method == "POST") {
    const int64_t number = history_path(request.path)->number;
    const gateway::ConfigHistory::Entry* entry = history_.find(number);
    if (entry == nullptr) return no_history(number);
    return entry->text;
  }
  const bool is_object = request.path.starts_with(kObjects);
  if (!is_object && request.method == "PUT") return request.body;
  const auto place = is_object ? place_of(request.path) : gateway::ConfigPlace();
  if (!place) return Error{ErrorCode::kNotFound, "there is nothing of that kind", "kind"};
  if (!before.ok()) return before.error();
  if (request.method == "DELETE") return gateway::without_object(*before, file_, *place);
  if (request.method == "PUT") {
    return gateway::with_object(*before, file_, *place, request.body);
  }
  TRY_ASSIGN(const Json patch, Json::parse(request.body));
  return is_object ? gateway::patched_object(*before, file_, *place, patch)
                   : gateway::patched_config(*before, file_, patch);
}

std::optional<net::HttpResponse> GatewayReload::refused_at_once(const net::HttpRequest& request) {
  if (request.body.size() <= kConfigBytesMax) return std::nullopt;
  return refusal(bad_config({ErrorCode::kBadConfig, "it has more than 1 MiB", "body"}));
}

net::HttpResponse GatewayReload::replace(const net::HttpRequest& request, std::string_view who) {
  const Result<bool> tries = only_tries(request);
  if (!tries.ok()) return refusal(api::api_error(tries.error()));
  const Result<std::string_view> why = why_of(request);
  if (!why.ok()) return refusal(api::api_error(why.error()));
  if (request.method == "PATCH" && !is_merge_patch(request)) {
    net::HttpResponse refused = refusal(no_merge_patch(request.headers.get("Content-Type")));
    refused.headers.add("Accept-Patch", std::string(kMergePatch));
    return refused;
  }
  if (std::optional<net::HttpResponse> large = refused_at_once(request)) return *std::move(large);
  const std::string from = access::address_of(request);
  std::lock_guard lock(mutex_);
  const auto refused = [&](const api::ApiError& error) {
    if (!*tries) audit_refusal(who, from, error);
    return refusal(error);
  };
  const std::string_view wanted = request.headers.get("If-Match");
  const bool may_again =
      wanted.empty() && (request.method == "PATCH" || request.method == "DELETE");
  const bool is_revert = request.method == "POST";
  for (int left = may_again ? kTriesMax : 1; left > 0; --left) {
    const Result<std::string> before = base::read_file(file_, kConfigBytesMax);
    if (!wanted.empty() && (!before.ok() || wanted != etag_of(*before))) break;
    const Result<std::string> text = text_asked(request, before);
    if (!text.ok()) return refused(bad_edit(text.error()));
    if (*tries) return try_out(*text, before);
    std::optional<net::HttpResponse> answer =
        put_in_force(*text, before,
                     {.who = who,
                      .from = from,
                      .reverts_to = is_revert ? history_path(request.path)->number : 0,
                      .why = *why});
    if (answer) return *std::move(answer);
  }
  return refused(changed_meanwhile());
}

std::optional<net::HttpResponse> GatewayReload::put_in_force(const std::string& text,
                                                             const Result<std::string>& was,
                                                             Change change) {
  const std::string before = gateway_.effective_config();
  change.before = before;
  // All that can fail comes before the file is another one.
  Result<Read> read = read_whole(text);
  if (!read.ok()) {
    note(fmt::format("{}'s", change.who), read.error());
    gateway_.note_bad_reload();
    change.error = read.error().message;
    audit(change);
    return refusal(bad_config(read.error()));
  }
  const std::variant<Stamp, api::ApiError> written = write_in_place(text, was);
  if (const auto* error = std::get_if<api::ApiError>(&written)) {
    if (error->status == changed_meanwhile().status) return std::nullopt;
    log_.warning(fmt::format("{}'s configuration: {}", change.who, error->message));
    change.error = error->code;
    audit(change);
    return refusal(*error);
  }
  take(*std::move(read), std::get<Stamp>(written));
  note(fmt::format("{}'s", change.who), {});
  log_.info(fmt::format("{} has replaced the configuration", change.who));
  remember(text, change);
  audit(change);
  std::string body;
  base::JsonWriter w(body);
  const auto changes = gateway::config_changes(before, gateway_.effective_config());
  w.begin_object();
  write_changes(w, changes.ok() ? *changes : std::vector<gateway::ConfigChange>{});
  w.key("takes_new_start").begin_array();
  for (const std::string& key : last_.takes_new_start) w.string(key);
  w.end_array().end_object();
  net::HttpResponse response = net::json_response(std::move(body));
  response.headers.add("ETag", etag_of(text));
  return response;
}

// Where a link leads.
std::string GatewayReload::whole_file() const {
  std::error_code unresolved;
  const std::filesystem::path whole = std::filesystem::canonical(file_, unresolved);
  return unresolved ? file_ : whole.string();
}

// The new one is written beside it first.
bool GatewayReload::is_writable() const {
  const std::filesystem::path folder = std::filesystem::path(whole_file()).parent_path();
  return ::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
}

// The new file takes the place of what a link leads to, with its mode.
std::variant<GatewayReload::Stamp, api::ApiError> GatewayReload::write_in_place(
    const std::string& text, const Result<std::string>& was) const {
  const std::string file = whole_file();
  const std::string fresh = file + ".new";
  if (const Result<void> written = base::write_private_file(fresh, text); !written.ok()) {
    const std::string& why = written.error().message;
    const size_t reason = why.rfind(": ");
    return not_writable(file, reason == std::string::npos ? why : why.substr(reason + 2));
  }
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) {
    ::chmod(fresh.c_str(), status.st_mode & 07777);  // its owner may: it has just been written
  }
  // What is said to be in force is there after a loss of power, too.
  const Result<void> on_disk = base::sync_path(fresh);
  const Stamp stamp = stamp_of(fresh);
  // Whoever has edited it by hand meanwhile loses nothing.
  if (!is_same(base::read_file(file_, kConfigBytesMax), was)) {
    ::unlink(fresh.c_str());
    return changed_meanwhile();
  }
  if (on_disk.ok() && ::rename(fresh.c_str(), file.c_str()) == 0) {
    const Result<void> named = base::sync_name(file);
    if (!named.ok()) log_.warning(named.error().message);
    return stamp;
  }
  const std::string why = on_disk.ok() ? std::strerror(errno) : on_disk.error().message;
  ::unlink(fresh.c_str());
  return not_writable(file, why);
}

// What each file has from its stamp on is read anew later: the stamps come first.
Result<GatewayReload::Read> GatewayReload::read_whole(const std::string& text) {
  Read read{.keys = stamp_of(keys_file_), .workers = stamp_of(workers_file_)};
  TRY_ASSIGN(gateway::GatewayConfig config, gateway::complete_gateway_config(text, file_, rules_));
  if (config.keys_file != keys_file_ || config.workers_file != workers_file_) {
    read.keys = stamp_of(config.keys_file);
    read.workers = stamp_of(config.workers_file);
    TRY_ASSIGN(config, gateway::complete_gateway_config(text, file_, rules_));
  }
  if (!keys_file_.empty() && config.keys_file.empty()) return keys_gone();
  TRY(gateway::check_fixed_pools(*gateway_.in_force(), config));
  TRY_ASSIGN(read.options, gateway_options(config, texts_));
  TRY(check_(config, read.options.operators));
  return read;
}

Result<void> GatewayReload::try_reload(const std::string& text, const Stamp& stamp) {
  TRY_ASSIGN(Read read, read_whole(text));
  take(std::move(read), stamp);
  return {};
}

// Cannot fail: it has been read whole.
void GatewayReload::take(Read read, const Stamp& stamp) {
  gateway::Gateway::Options& options = read.options.gateway;
  gate_.set_keys(std::move(read.options.operators));
  keys_file_ = options.config.keys_file;
  workers_file_ = options.config.workers_file;
  read_ = seen_ = {stamp, read.keys, read.workers};
  const std::vector<std::string_view> kept =
      gateway_.reload(std::move(options.config), std::move(options.keys), std::move(options.texts));
  last_.takes_new_start.assign(kept.begin(), kept.end());
  if (!kept.empty()) {
    log_.warning(
        fmt::format("{}: changed in the file, which takes a new start", fmt::join(kept, ", ")));
  }
}

}  // namespace pelton::apps

// pelton audit verify, show: whether an audit log (gateway --audit-log) is as it was written, and
// what stands in it.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "access/audit_chain.h"
#include "apps/input.h"
#include "apps/secret_file.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/json_writer.h"

namespace pelton::apps {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 30;

Error fault_of(const std::string& file, const access::AuditVerdict::Fault& fault) {
  return {ErrorCode::kIo,
          fault.line == 0 ? fmt::format("{}: {}", file, fault.what)
                          : fmt::format("{}:{}: {}", file, fault.line, fault.what),
          "FILE"};
}

// All lines of the files, in their order; an error: the first fault.
struct Whole {
  std::vector<access::AuditLine> lines;
  access::AuditHead end;
  bool is_ahead = false;
};

// A log as it lies there, with its head.
struct Lying {
  std::string text;
  std::string head;  // empty: there is none, as of files that were put aside

  bool operator==(const Lying&) const = default;
};
Result<Lying> read_log(const std::string& file, bool has_head) {
  Lying lying;
  TRY_ASSIGN(lying.text, base::read_file(file, kFileBytesMax));
  if (!has_head) return lying;
  const Result<std::string> head = base::read_file(file + ".head", kFileBytesMax);
  if (!head.ok() || head->empty()) {
    return fault_of(file, {.line = 0, .what = "its head is missing"});
  }
  lying.head = *head;
  return lying;
}

// Behind `whole`, which has the files before.
Result<void> add_file(const std::string& file, const Lying& lying, const std::string& key,
                      Whole& whole) {
  access::AuditProof proof{.before = whole.end};
  if (!lying.head.empty()) {
    const Result<access::AuditHead> head = access::read_audit_head(lying.head, key);
    if (!head.ok()) return fault_of(file + ".head", {.line = 0, .what = head.error().message});
    proof.head = *head;
  }
  const access::AuditVerdict verdict = access::verify_audit(lying.text, key, proof, &whole.lines);
  if (verdict.fault) return fault_of(file, *verdict.fault);
  whole.end = verdict.end;
  whole.is_ahead = verdict.is_ahead;
  return {};
}

// The last one may be written just now: what is no fault of the next reading was none.
Result<void> add_last_file(const std::string& file, const std::string& key, Whole& whole) {
  Lying before;
  for (;;) {
    TRY_ASSIGN(Lying now, read_log(file, true));
    Whole tried = whole;
    const Result<void> added = add_file(file, now, key, tried);
    if (!added.ok() && now != before) {
      before = std::move(now);
      continue;
    }
    if (added.ok()) whole = std::move(tried);
    return added;
  }
}

Result<Whole> read_whole(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string key, read_secret_file(arguments, "--key-file"));
  const std::vector<std::string> files = arguments.list("FILE");
  const std::string noted = arguments.has("--noted") ? arguments.text("--noted") : "";
  Whole whole;
  for (const std::string& file : files) {
    if (&file == &files.back()) {
      TRY(add_last_file(file, key, whole));
    } else {  // the next one's first line says that it is whole
      TRY_ASSIGN(const Lying lying, read_log(file, false));
      TRY(add_file(file, lying, key, whole));
    }
  }
  const bool has_noted =
      noted.empty() ||
      std::ranges::find(whole.lines, noted, &access::AuditLine::hash) != whole.lines.end();
  if (has_noted) return whole;
  return fault_of(files.back(),
                  {.line = 0,
                   .what = "no line has the hash that was noted elsewhere: this is an "
                           "older log, or another one"});
}

Result<void> verify(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Whole whole, read_whole(arguments));
  std::string range;
  if (!whole.lines.empty()) {
    const int64_t first = whole.lines.front().number;
    range = fmt::format(" from {} to {}", first, whole.lines.back().number);
    if (first > 1) {
      range += fmt::format(" (the {} before are in files that were not given)", first - 1);
    }
  }
  return write_output(fmt::format(
      "{} lines, each as it was written, none missing{}{}\nlast line: {}\n", whole.lines.size(),
      range, whole.is_ahead ? "; its writer ended before the head named the last one" : "",
      whole.end.hash.empty() ? "-" : whole.end.hash));
}

std::string line_text(const access::AuditLine& line) {
  const access::AuditEvent& event = line.event;
  std::string text =
      fmt::format("{:>6}  {}  {:<16} {:<15} {}{}{}{}\n", line.number, event.at,
                  event.who.empty() ? "-" : event.who, event.from.empty() ? "-" : event.from,
                  event.what, event.target.empty() ? "" : " " + event.target,
                  event.result.empty() ? "" : ": ", event.result);
  for (const std::string& one : event.detail) text += fmt::format("        {}\n", one);
  return text;
}

void write_line(base::JsonWriter& w, const access::AuditLine& line) {
  const access::AuditEvent& event = line.event;
  w.begin_object().key("n").integer(line.number).key("at").string(event.at);
  w.key("who").string(event.who).key("from").string(event.from).key("what").string(event.what);
  w.key("target").string(event.target).key("result").string(event.result);
  w.key("detail").begin_array();
  for (const std::string& one : event.detail) w.string(one);
  w.end_array().key("hash").string(line.hash).end_object();
}

Result<void> show(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Whole whole, read_whole(arguments));
  const auto last = static_cast<size_t>(arguments.integer("--last"));
  const size_t first = whole.lines.size() - std::min(last, whole.lines.size());
  std::string out;
  for (size_t i = first; i < whole.lines.size(); ++i) {
    if (!arguments.has("--json")) {
      out += line_text(whole.lines[i]);
      continue;
    }
    base::JsonWriter w(out);
    write_line(w, whole.lines[i]);
    out += '\n';
  }
  return arguments.has("--json") ? write_output(out) : write_text(out);
}

std::vector<cli::Positional> files() {
  return {{.name = "FILE",
           .help = "the log; those that were put aside (FILE.N) go before it, in their order",
           .many = true}};
}

std::vector<cli::Flag> flags() {
  return {{.name = "--key-file",
           .value = "FILE",
           .help = "the key that the log was written under (gateway --audit-key-file)",
           .required = true},
          {.name = "--noted",
           .value = "HASH",
           .help = "a line's hash, as audit verify printed it once, that must be among these"}};
}

}  // namespace

std::vector<cli::Verb> audit_verbs() {
  cli::Verb verify_verb{
      .name = "audit verify",
      .summary = "Says whether an audit log is as it was written.",
      .about =
          "Finds any line that was changed, cut, moved or added, and lines that are missing at\n"
          "the end (by FILE.head), unless somebody has the key. Whoever puts an older log with\n"
          "its older head in its place is found by --noted: keep the hash that is printed\n"
          "elsewhere.",
      .positionals = files(),
      .flags = flags(),
      .examples = {"pelton audit verify /var/log/pelton/audit.jsonl --key-file audit.key"},
      .run = verify};
  cli::Verb show_verb{.name = "audit show",
                      .summary = "Shows an audit log that is as it was written.",
                      .positionals = files(),
                      .flags = flags(),
                      .examples = {"pelton audit show audit.jsonl --key-file audit.key --last 20"},
                      .run = show};
  show_verb.flags.push_back({.name = "--last",
                             .value = "N",
                             .help = "its last lines only",
                             .kind = cli::Flag::Kind::kInteger,
                             .default_text = "1000000",
                             .least = 1});
  show_verb.flags.push_back({.name = "--json",
                             .help = "a line of JSON for each, with its hash",
                             .kind = cli::Flag::Kind::kSwitch});
  return {std::move(verify_verb), std::move(show_verb)};
}

}  // namespace pelton::apps

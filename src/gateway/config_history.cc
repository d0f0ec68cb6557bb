#include "gateway/config_history.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/private_file.h"

namespace pelton::gateway {
namespace {

// More than all entries may take: JSON has two bytes for one of TOML's at most.
constexpr size_t kFileBytesMax = 4 * ConfigHistory::kBytesMax;
constexpr size_t kChangeBytesMax = 1024;

std::string line_of(const ConfigHistory::Entry& entry) {
  std::string line;
  base::JsonWriter w(line);
  w.begin_object().key("n").integer(entry.number).key("at").integer(entry.unix_ms);
  w.key("who").string(entry.who).key("from").string(entry.from);
  w.key("reverts_to").integer(entry.reverts_to).key("changes").begin_array();
  for (const std::string& change : entry.changes) w.string(change);
  w.end_array().key("text").string(entry.text).end_object();
  return line + "\n";
}

std::optional<ConfigHistory::Entry> entry_of(std::string_view line) {
  const Result<Json> json = Json::parse(line);
  if (!json.ok()) return std::nullopt;
  const std::optional<int64_t> number = json->integer("n");
  const std::optional<std::string> text = json->string("text");
  if (!number || *number < 1 || !text) return std::nullopt;
  ConfigHistory::Entry entry{.number = *number,
                             .unix_ms = json->integer("at").value_or(0),
                             .who = json->string("who").value_or(""),
                             .from = json->string("from").value_or(""),
                             .reverts_to = json->integer("reverts_to").value_or(0),
                             .text = *text};
  const Json* changes = json->find("changes");
  for (size_t i = 0; changes != nullptr && changes->is_array() && i < changes->as_array().size();
       ++i) {
    const Json& change = changes->as_array()[i];
    if (change.is_string()) entry.changes.push_back(change.as_string());
  }
  return entry;
}

}  // namespace

ConfigHistory::ConfigHistory(std::string file) : file_(std::move(file)) {
  if (!file_.empty()) read();
}

void ConfigHistory::read() {
  const Result<std::string> text = base::read_file(file_, kFileBytesMax);
  if (!text.ok()) {
    is_foreign_ = text.error().code != ErrorCode::kNotFound;
    if (is_foreign_) error_ = text.error().message;
    return;
  }
  file_bytes_ = text->size();
  for (size_t at = 0; at < text->size();) {
    const size_t end = text->find('\n', at);
    if (end == std::string::npos) break;
    std::optional<Entry> entry = entry_of(std::string_view(*text).substr(at, end - at));
    at = end + 1;
    if (!entry || entry->number <= last_number_) continue;
    if (entry->number > kNumberMax) {
      is_foreign_ = true;
      error_ = fmt::format("{}: number {} is beyond {}", file_, entry->number, kNumberMax);
      continue;
    }
    last_number_ = entry->number;
    text_bytes_ += entry->text.size();
    entries_.push_back(*std::move(entry));
    drop_old();
  }
  if (!is_foreign_ && !text->empty() && !text->ends_with('\n')) write_all();
}

void ConfigHistory::note(Entry entry) {
  if (!entries_.empty() && entries_.back().text == entry.text) return;
  entry.number = ++last_number_;
  if (entry.changes.size() > kChangesMax) entry.changes.resize(kChangesMax);
  for (std::string& change : entry.changes) {
    if (change.size() > kChangeBytesMax) change.resize(kChangeBytesMax);
  }
  text_bytes_ += entry.text.size();
  entries_.push_back(std::move(entry));
  drop_old();
  if (file_.empty() || is_foreign_) return;
  const std::string line = line_of(entries_.back());
  if (error_.empty() && file_bytes_ + line.size() <= kFileBytesMax) {
    append(line);
  } else {
    write_all();
  }
}

// The last one stays, however long it is.
void ConfigHistory::drop_old() {
  while (entries_.size() > 1 && (entries_.size() > kEntriesMax || text_bytes_ > kBytesMax)) {
    text_bytes_ -= entries_.front().text.size();
    entries_.pop_front();
  }
}

void ConfigHistory::write_all() {
  std::string all;
  for (const Entry& entry : entries_) all += line_of(entry);
  const Result<void> written = base::write_private_file(file_, all);
  error_ = written.ok() ? std::string() : written.error().message;
  if (!written.ok()) return;
  file_bytes_ = all.size();
}

// Whole or not at all: of half a line write_all() gets rid.
void ConfigHistory::append(const std::string& line) {
  const base::Descriptor file(
      ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  const bool is_whole =
      file.get() >= 0 && ::fchmod(file.get(), 0600) == 0 &&
      ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
      ::fdatasync(file.get()) == 0;
  if (!is_whole) return write_all();
  file_bytes_ += line.size();
}

const ConfigHistory::Entry* ConfigHistory::find(int64_t number) const {
  const auto found = std::ranges::find(entries_, number, &Entry::number);
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace pelton::gateway

#include "console/feed.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"

namespace pelton::console {

void Feed::note_table(const Table& table) {
  const auto [place, is_new] = tables_.try_emplace(table.name);
  Shown& shown = place->second;
  if (is_new) shown.lost = newest_;
  const size_t gone =
      std::erase_if(shown.rows, [&](const auto& row) { return !table.rows.contains(row.first); });
  if (gone > 0) shown.lost = newest_;
  for (const auto& [key, text] : table.rows) {
    Row& row = shown.rows[key];
    if (row.changed != 0 && row.text == text) continue;
    row = {.text = text, .changed = newest_};
  }
}

void Feed::note(std::string sample, std::vector<Table> tables) {
  std::lock_guard lock(mutex_);
  ++newest_;
  if (sample.size() > kSampleBytesMax) sample.clear();
  samples_.push_back(std::move(sample));
  if (samples_.size() > kSamples) samples_.pop_front();
  for (const Table& table : tables) note_table(table);
  if (!tables.empty()) tabled_ = newest_;
}

EventStreams::News Feed::after(int64_t number) const {
  std::lock_guard lock(mutex_);
  EventStreams::News news{.newest = newest_, .data = {}};
  if (tabled_ != newest_ || number == newest_) return news;
  // One of an earlier start of the process, or of nobody's.
  if (number > newest_ || number < first_) number = 0;
  news.data = fmt::format("{{\"n\":{},\"samples\":[", newest_);
  const int64_t oldest = newest_ - static_cast<int64_t>(samples_.size()) + 1;
  const char* comma = "";
  for (int64_t next = std::max(number + 1, oldest); next <= newest_; ++next) {
    const std::string& sample = samples_[static_cast<size_t>(next - oldest)];
    if (sample.empty()) continue;
    news.data += fmt::format("{}{{\"n\":{},{}}}", std::exchange(comma, ","), next, sample);
  }
  news.data += "],\"tables\":{";
  comma = "";
  for (const auto& [name, shown] : tables_) {
    const bool all = number < shown.lost;
    news.data += std::exchange(comma, ",");
    base::JsonWriter(news.data).string(name);
    news.data += fmt::format(":{{\"all\":{},\"rows\":[", all);
    const char* row_comma = "";
    for (const auto& [key, row] : shown.rows) {
      if (!all && row.changed <= number) continue;
      news.data += std::exchange(row_comma, ",");
      news.data += row.text;
    }
    news.data += "]}";
  }
  news.data += "}}";
  return news;
}

}  // namespace pelton::console

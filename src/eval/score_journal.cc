#include "eval/score_journal.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::eval {
namespace {

constexpr const char* kOf = "pelton_perplexity_journal";

// [nats, nats of the other, divergence, whether both have the same likeliest token]
std::optional<PositionScore> parse_score(const Json& json) {
  if (!json.is_array() || json.as_array().size() != 4) return std::nullopt;
  const Json::Array& numbers = json.as_array();
  for (const Json& number : numbers) {
    if (!number.is_number()) return std::nullopt;
  }
  return PositionScore{.nats = numbers[0].as_number(),
                       .other_nats = numbers[1].as_number(),
                       .divergence = numbers[2].as_number(),
                       .agrees = numbers[3].as_number() != 0};
}

// A window's, all of them or none.
std::vector<PositionScore> parse_scores(const Json& line, int64_t from) {
  const Json* const list = line.is_object() ? line.find("scores") : nullptr;
  if (list == nullptr || !list->is_array() || line.integer("from") != from) return {};
  std::vector<PositionScore> scores;
  for (const Json& one : list->as_array()) {
    const std::optional<PositionScore> score = parse_score(one);
    if (!score) return {};
    scores.push_back(*score);
  }
  return scores;
}

}  // namespace

Result<ScoreJournal> ScoreJournal::open(const std::string& path, const std::string& digest) {
  ScoreJournal journal;
  journal.path_ = path;
  const Result<std::string> text = base::read_file(path);
  if (!text.ok() && text.error().code != ErrorCode::kNotFound) return text.error();
  const bool is_new = !text.ok() || text->empty();
  if (!is_new) TRY(journal.read(*text, path, digest));
  TRY_ASSIGN(journal.file_, base::open_output(path, base::OutputMode::kAppend));
  if (is_new) {
    std::fputs((Json(Json::Object{{kOf, digest}}).dump() + "\n").c_str(), journal.file_.get());
  } else if (text->back() != '\n') {
    std::fputc('\n', journal.file_.get());  // behind a line that was cut
  }
  return journal;
}

Result<void> ScoreJournal::read(std::string_view text, const std::string& path,
                                const std::string& digest) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const Result<Json> json = Json::parse(text.substr(begin, end - begin));
    const bool is_first = begin == 0;
    begin = end + 1;
    if (is_first) {
      const bool is_object = json.ok() && json->is_object();
      if (is_object && json->string(kOf) == digest) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} is of another model, text, window or format; remove it or take "
                               "another --out",
                               path),
                   "out"};
    }
    if (!json.ok()) continue;  // cut amid a line: computed again
    const std::vector<PositionScore> scores = parse_scores(*json, std::ssize(known_) + 1);
    known_.insert(known_.end(), scores.begin(), scores.end());
  }
  kept_ = std::ssize(known_);
  return {};
}

Result<void> ScoreJournal::keep(std::span<const PositionScore> scores) {
  std::string line;
  base::JsonWriter w(line);
  w.begin_object().key("from").integer(kept_ + 1).key("scores").begin_array();
  for (const PositionScore& one : scores) {
    w.begin_array().number(one.nats).number(one.other_nats).number(one.divergence);
    w.integer(one.agrees ? 1 : 0).end_array();
  }
  w.end_array().end_object();
  line += '\n';
  kept_ += std::ssize(scores);
  const bool is_written = std::fputs(line.c_str(), file_.get()) >= 0;
  if (is_written && std::fflush(file_.get()) == 0) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: {}", path_, std::strerror(errno))};
}

}  // namespace pelton::eval

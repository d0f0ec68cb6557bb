#include "store/played_points.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "store/sqlite_file.h"

namespace pelton::store {
namespace {

using Step = Statement::Step;

constexpr const char* kSchema = R"(
CREATE TABLE points (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT UNIQUE NOT NULL,
  played_at INTEGER NOT NULL,
  model TEXT NOT NULL,
  load TEXT NOT NULL,
  settings TEXT NOT NULL,
  json TEXT NOT NULL
);
PRAGMA application_id = 1348761670;
PRAGMA user_version = 1;
)";

constexpr SqliteFile::Kind kKind = {.what = "played points (pelton tune --history)",
                                    .application_id = 1'348'761'670,
                                    .format = 1,
                                    .schema = kSchema,
                                    .later = ""};

}  // namespace

PlayedPoints::PlayedPoints(std::unique_ptr<SqliteFile> file) : file_(std::move(file)) {}
PlayedPoints::PlayedPoints(PlayedPoints&&) noexcept = default;
PlayedPoints& PlayedPoints::operator=(PlayedPoints&&) noexcept = default;
PlayedPoints::~PlayedPoints() = default;

Result<PlayedPoints> PlayedPoints::open(const std::string& file) {
  TRY_ASSIGN(std::unique_ptr<SqliteFile> opened, SqliteFile::open(file, kKind));
  return PlayedPoints(std::move(opened));
}

Result<PlayedPoints> PlayedPoints::open_existing(const std::string& file) {
  std::error_code unknown;
  if (std::filesystem::exists(file, unknown)) return open(file);
  return Error{ErrorCode::kIo,
               fmt::format("{} does not exist; `pelton tune --history FILE` makes it", file),
               "history"};
}

Result<std::optional<std::string>> PlayedPoints::find(std::string_view key) const {
  Statement statement(file_->handle(), "SELECT json FROM points WHERE key = ?");
  const Step step = statement.text(key).step();
  if (step == Step::kFailed) return file_->error("cannot be read");
  if (step == Step::kDone) return std::optional<std::string>();
  return std::optional<std::string>(statement.text_at(0));
}

Result<void> PlayedPoints::add(const PlayedPoint& point) {
  Statement statement(file_->handle(),
                      "INSERT OR REPLACE INTO points(key, played_at, model, load, settings, json) "
                      "VALUES(?, ?, ?, ?, ?, ?)");
  statement.text(point.key).number(point.played_at).text(point.model).text(point.load);
  if (statement.text(point.settings).text(point.json).step() == Step::kDone) return {};
  return file_->error("cannot be written");
}

Result<std::vector<PlayedPoint>> PlayedPoints::newest(int64_t count_max) const {
  Statement statement(file_->handle(),
                      "SELECT key, played_at, model, load, settings, json FROM points "
                      "ORDER BY number DESC LIMIT ?");
  statement.number(count_max);
  std::vector<PlayedPoint> points;
  Step step = statement.step();
  for (; step == Step::kRow; step = statement.step()) {
    points.push_back({.key = statement.text_at(0),
                      .played_at = statement.number_at(1),
                      .model = statement.text_at(2),
                      .load = statement.text_at(3),
                      .settings = statement.text_at(4),
                      .json = statement.text_at(5)});
  }
  if (step == Step::kFailed) return file_->error("cannot be read");
  return points;
}

}  // namespace pelton::store

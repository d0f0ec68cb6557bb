// What the simulator gave for settings that were tried, kept in an SQLite file, so that nothing is
// played twice. A key stands for all that a result depends on; what is kept is the caller's text.
// Owned by whoever opens it; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::store {

class SqliteFile;

struct PlayedPoint {
  std::string key;
  int64_t played_at = 0;  // seconds since 1970
  std::string model;
  std::string load;      // in words, for people
  std::string settings;  // likewise
  std::string json;      // of the result
};

class PlayedPoints {
 public:
  // Made if it is not there. Errors: kBadConfig where it is another kind of file, damaged, or
  // another process has it.
  static Result<PlayedPoints> open(const std::string& file);
  // Where there is no such file, none is made: kNotFound.
  static Result<PlayedPoints> open_existing(const std::string& file);

  PlayedPoints(PlayedPoints&&) noexcept;
  PlayedPoints& operator=(PlayedPoints&&) noexcept;
  ~PlayedPoints();

  // The result that is kept under that key; empty: none is. Errors: kIo.
  Result<std::optional<std::string>> find(std::string_view key) const;
  // Instead of what is there. Errors: kIo.
  Result<void> add(const PlayedPoint& point);
  // The newest first. Errors: kIo.
  Result<std::vector<PlayedPoint>> newest(int64_t count_max) const;

 private:
  explicit PlayedPoints(std::unique_ptr<SqliteFile> file);
  std::unique_ptr<SqliteFile> file_;
};

}  // namespace pelton::store

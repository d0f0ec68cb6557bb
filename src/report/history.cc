#include "report/history.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sqlite3.h>

#include "base/terminal_text.h"
#include "base/utf8.h"

namespace pelton::report {
namespace {

constexpr double kWorseShare = 0.05;
constexpr int kBusyMs = 10'000;  // another benchmark may be writing

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS results("
    "id INTEGER PRIMARY KEY, date TEXT NOT NULL, setup TEXT NOT NULL, json TEXT NOT NULL);"
    "CREATE INDEX IF NOT EXISTS results_by_setup ON results(setup, id);";

Error failed(sqlite3* database, const std::string& file) {
  return Error{ErrorCode::kIo, fmt::format("{}: {}", file, sqlite3_errmsg(database)), "history"};
}

// SQLite would say that the disk fails.
std::optional<Error> not_a_file(const std::string& file) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(file, unknown)) return std::nullopt;
  return Error{ErrorCode::kIo,
               fmt::format("{} is a folder; name the file that `bench serve --history FILE` keeps "
                           "results in",
                           base::one_line(file)),
               "history"};
}

// A prepared statement, ended with its scope.
struct Statement {
  sqlite3_stmt* handle = nullptr;
  ~Statement() { sqlite3_finalize(handle); }
};

void bind(sqlite3_stmt* statement, int at, const std::string& text) {
  sqlite3_bind_text64(statement, at, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

std::string column(sqlite3_stmt* statement, int at) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, at));
  return text == nullptr
             ? ""
             : std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement, at)));
}

// Lists of every request and curves stay in their own files.
Json slim(const Json& result) {
  Json kept(Json::Object{});
  for (const Json::Member& member : result.as_object()) {
    if (member.value.is_array()) continue;
    if (member.key != "pelton") {
      kept.set(member.key, member.value);
      continue;
    }
    Json own(Json::Object{});
    for (const Json::Member& part : member.value.as_object()) {
      const bool large =
          part.value.is_array() || part.key == "definitions" || part.key == "quantiles_ms";
      if (!large) own.set(part.key, part.value);
    }
    kept.set("pelton", std::move(own));
  }
  return kept;
}

}  // namespace

struct History::Database {
  sqlite3* handle = nullptr;
  std::string file;
  ~Database() { sqlite3_close(handle); }

  Result<std::vector<PastResult>> read(sqlite3_stmt* statement) const {
    std::vector<PastResult> results;
    int step = SQLITE_ROW;
    while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
      PastResult past{
          .id = sqlite3_column_int64(statement, 0), .date = column(statement, 1), .json = {}};
      Result<Json> json = Json::parse(column(statement, 2));
      if (!json || !json->is_object()) {
        return Error{ErrorCode::kIo, fmt::format("{}: result {} is damaged", file, past.id),
                     "history"};
      }
      past.json = std::move(*json);
      results.push_back(std::move(past));
    }
    if (step != SQLITE_DONE) return failed(handle, file);
    return results;
  }
};

History::History(std::unique_ptr<Database> database) : database_(std::move(database)) {}
History::History(History&&) noexcept = default;
History::~History() = default;

Result<History> History::open(const std::string& file) {
  if (std::optional<Error> error = not_a_file(file)) return *std::move(error);
  auto database = std::make_unique<Database>();
  database->file = file;
  if (sqlite3_open(file.c_str(), &database->handle) != SQLITE_OK) {
    return failed(database->handle, file);
  }
  sqlite3_busy_timeout(database->handle, kBusyMs);
  if (sqlite3_exec(database->handle, kSchema, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return failed(database->handle, file);
  }
  return History(std::move(database));
}

Result<History> History::open_existing(const std::string& file) {
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) {
    return Error{ErrorCode::kIo,
                 fmt::format("{} does not exist; `bench serve --history FILE` makes it with its "
                             "first result",
                             base::one_line(file)),
                 "history"};
  }
  if (std::optional<Error> error = not_a_file(file)) return *std::move(error);
  auto database = std::make_unique<Database>();
  database->file = file;
  if (sqlite3_open_v2(file.c_str(), &database->handle, SQLITE_OPEN_READONLY, nullptr) !=
      SQLITE_OK) {
    return failed(database->handle, file);
  }
  sqlite3_busy_timeout(database->handle, kBusyMs);
  return History(std::move(database));
}

Result<void> History::add(const Json& result) {
  Statement statement;
  sqlite3* const handle = database_->handle;
  if (sqlite3_prepare_v2(handle, "INSERT INTO results(date, setup, json) VALUES(?, ?, ?)", -1,
                         &statement.handle, nullptr) != SQLITE_OK) {
    return failed(handle, database_->file);
  }
  bind(statement.handle, 1, result.string("date").value_or(""));
  bind(statement.handle, 2, setup_of(result));
  bind(statement.handle, 3, slim(result).dump());
  if (sqlite3_step(statement.handle) != SQLITE_DONE) return failed(handle, database_->file);
  return {};
}

Result<std::vector<PastResult>> History::alike(const Json& result, int count_max) const {
  Statement statement;
  sqlite3* const handle = database_->handle;
  if (sqlite3_prepare_v2(
          handle, "SELECT id, date, json FROM results WHERE setup = ? ORDER BY id DESC LIMIT ?", -1,
          &statement.handle, nullptr) != SQLITE_OK) {
    return failed(handle, database_->file);
  }
  bind(statement.handle, 1, setup_of(result));
  sqlite3_bind_int(statement.handle, 2, count_max);
  return database_->read(statement.handle);
}

Result<std::vector<PastResult>> History::newest(int count_max) const {
  Statement statement;
  sqlite3* const handle = database_->handle;
  if (sqlite3_prepare_v2(handle, "SELECT id, date, json FROM results ORDER BY id DESC LIMIT ?", -1,
                         &statement.handle, nullptr) != SQLITE_OK) {
    return failed(handle, database_->file);
  }
  sqlite3_bind_int(statement.handle, 1, count_max);
  return database_->read(statement.handle);
}

std::string setup_of(const Json& result) {
  std::string setup;
  const auto add = [&](const Json* value) {
    setup += value == nullptr ? "-" : value->dump();
    setup += '|';
  };
  for (const char* key : {"backend", "label", "model_id", "dataset_name", "num_prompts",
                          "request_rate", "burstiness", "max_concurrency"}) {
    add(result.find(key));
  }
  const Json* own = result.find("pelton");
  for (const char* key : {"endpoint", "input_len", "output_len", "hardware"}) {
    add(own == nullptr ? nullptr : own->find(key));
  }
  return setup;
}

std::vector<Regression> regressions(const Json& now, const std::vector<PastResult>& before) {
  std::vector<Regression> found;
  for (const Figure& figure : kFigures) {
    const std::optional<double> value = figure_of(now, figure.key);
    std::vector<double> earlier;
    for (const PastResult& past : before) {
      if (const auto one = figure_of(past.json, figure.key)) earlier.push_back(*one);
    }
    if (!value || earlier.empty()) continue;
    std::sort(earlier.begin(), earlier.end());
    const double median = (earlier[(earlier.size() - 1) / 2] + earlier[earlier.size() / 2]) / 2;
    const double worst = figure.less_is_better ? earlier.back() : earlier.front();
    const double worse_by = figure.less_is_better ? *value - median : median - *value;
    const bool worse_than_all = figure.less_is_better ? *value > worst : *value < worst;
    if (worse_than_all && worse_by > kWorseShare * std::abs(median) &&
        worse_by >= figure.tells_from) {
      found.push_back({.figure = figure, .before = median, .now = *value});
    }
  }
  return found;
}

std::string regressions_text(const std::vector<Regression>& found, size_t compared_with) {
  if (compared_with == 0) return "history: the first result of this setup\n";
  if (found.empty()) {
    return fmt::format("history: no worse than the {} before it of this setup\n", compared_with);
  }
  std::string out =
      fmt::format("REGRESSION against the {} before it of this setup:\n", compared_with);
  for (const Regression& one : found) {
    const double share = one.before == 0 ? 0 : (one.now - one.before) / std::abs(one.before) * 100;
    out += fmt::format("  {:<22} {:>10.2f} -> {:>10.2f} ({:+.1f} %)\n", one.figure.name, one.before,
                       one.now, share);
  }
  return out;
}

std::string history_text(const std::vector<PastResult>& results, int width) {
  base::TextTable table{
      .headers = {"id", "date", "model", "at once", "req/s", "out tok/s", "TTFT P50", "TPOT P50"},
      .rows = {}};
  for (auto past = results.rbegin(); past != results.rend(); ++past) {
    const auto number = [&](const char* key) {
      const std::optional<double> value = figure_of(past->json, key);
      return value ? fmt::format("{:.2f}", *value) : std::string("-");
    };
    const std::string model = base::one_line(past->json.string("model_id").value_or("-"));
    const std::optional<double> most = past->json.number("max_concurrency");
    table.rows.push_back({std::to_string(past->id), base::one_line(past->date),
                          model.substr(0, base::valid_utf8_prefix(model.substr(0, 18))),
                          most ? fmt::format("{:g}", *most) : "-", number("request_throughput"),
                          number("output_throughput"), number("median_ttft_ms"),
                          number("median_tpot_ms")});
  }
  return base::text_table(table, width, 0);
}

}  // namespace pelton::report

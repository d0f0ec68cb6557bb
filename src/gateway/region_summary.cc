#include "gateway/region_summary.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

constexpr std::string_view kLabel = "pelton region summary 1";
constexpr size_t kNameMax = 512;
constexpr int64_t kCountMax = 1 << 24;
constexpr int64_t kTokensMax = int64_t{1} << 48;
constexpr double kSecondsMax = 1e6;
constexpr size_t kColumns = 13;

// So many digits say as much, and change less often.
double rounded(double value) {
  if (!(value > 0)) return 0;
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

RegionModel rounded(const RegionModel& model) {
  RegionModel made = model;
  made.wait_s = rounded(model.wait_s);
  made.kv_used = rounded(model.kv_used);
  made.costs = {.fixed_s = rounded(model.costs.fixed_s),
                .prefill_token_s = rounded(model.costs.prefill_token_s),
                .row_s = rounded(model.costs.row_s),
                .context_token_s = rounded(model.costs.context_token_s)};
  return made;
}

void write_row(base::JsonWriter& w, const std::string& name, const RegionModel& model) {
  w.begin_array().string(name).integer(model.ready).integer(model.slots);
  w.integer(model.running).integer(model.waiting);
  w.integer(model.waiting_tokens).integer(model.context_tokens);
  for (const double value :
       {model.wait_s, model.kv_used, model.costs.fixed_s, model.costs.prefill_token_s,
        model.costs.row_s, model.costs.context_token_s}) {
    w.number(value);
  }
  w.end_array();
}

Error bad(std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("its summary: {}", what), {}};
}

Result<int64_t> whole(const Json& value, int64_t most) {
  if (value.is_integer() && value.as_integer() >= 0 && value.as_integer() <= most) {
    return value.as_integer();
  }
  return bad("a number that cannot be");
}
Result<double> number(const Json& value, double most) {
  const double read = value.is_integer()  ? static_cast<double>(value.as_integer())
                      : value.is_number() ? value.as_number()
                                          : -1;
  if (read >= 0 && read <= most) return read;
  return bad("a number that cannot be");
}

Result<std::pair<std::string, RegionModel>> read_row(const Json& row) {
  if (!row.is_array() || row.as_array().size() != kColumns || !row.as_array()[0].is_string()) {
    return bad("a row that is none");
  }
  const Json::Array& at = row.as_array();
  const std::string& name = at[0].as_string();
  if (name.empty() || name.size() > kNameMax) return bad("a model's name of no length");
  RegionModel model;
  const auto count = [&](size_t column, int& into) -> Result<void> {
    TRY_ASSIGN(const int64_t read, whole(at[column], kCountMax));
    into = static_cast<int>(read);
    return {};
  };
  TRY(count(1, model.ready));
  TRY(count(2, model.slots));
  TRY(count(3, model.running));
  TRY(count(4, model.waiting));
  TRY_ASSIGN(model.waiting_tokens, whole(at[5], kTokensMax));
  TRY_ASSIGN(model.context_tokens, whole(at[6], kTokensMax));
  TRY_ASSIGN(model.wait_s, number(at[7], kSecondsMax));
  TRY_ASSIGN(model.kv_used, number(at[8], 1));
  TRY_ASSIGN(model.costs.fixed_s, number(at[9], kSecondsMax));
  TRY_ASSIGN(model.costs.prefill_token_s, number(at[10], kSecondsMax));
  TRY_ASSIGN(model.costs.row_s, number(at[11], kSecondsMax));
  TRY_ASSIGN(model.costs.context_token_s, number(at[12], kSecondsMax));
  return std::pair(name, model);
}

}  // namespace

void RegionBook::set(const RegionModels& models) {
  bool changed = false;
  const auto next = [&] {
    if (!std::exchange(changed, true)) ++version_;
    return version_;
  };
  for (const auto& [name, model] : models) {
    if (rows_.size() >= kModelsMax && !rows_.contains(name)) continue;
    const RegionModel now = rounded(model);
    const auto [row, is_new] = rows_.try_emplace(name);
    if (!is_new && row->second.model == now) continue;
    row->second = {.model = now, .version = next()};
    gone_.erase(name);
  }
  for (auto row = rows_.begin(); row != rows_.end();) {
    if (models.contains(row->first)) {
      ++row;
      continue;
    }
    gone_[row->first] = next();
    row = rows_.erase(row);
  }
  if (gone_.size() <= kModelsMax) return;
  gone_.clear();
  forgotten_ = version_;
}

std::string RegionBook::summary(std::string_view book, int64_t since) const {
  const bool is_whole = book != name_ || since < 1 || since > version_ || since < forgotten_;
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("region").string(region_).key("book").string(name_);
  w.key("version").integer(version_).key("whole").boolean(is_whole);
  w.key("models").begin_array();
  for (const auto& [name, row] : rows_) {
    if (is_whole || row.version > since) write_row(w, name, row.model);
  }
  w.end_array().key("gone").begin_array();
  for (const auto& [name, version] : gone_) {
    if (!is_whole && version > since) w.string(name);
  }
  w.end_array().end_object();
  return body;
}

Result<void> RegionView::apply(std::string_view summary, std::string_view region) {
  const Result<Json> json = Json::parse(summary);
  if (!json.ok() || !json->is_object()) return bad("no JSON object");
  if (json->string("region") != region) {
    return bad(fmt::format("of the region '{}', and not '{}'",
                           json->string("region").value_or("").substr(0, 64), region));
  }
  const std::string book = json->string("book").value_or("");
  const int64_t version = json->integer("version").value_or(-1);
  const bool is_whole = json->boolean("whole") == true;
  if (book.empty() || book.size() > kNameMax || version < 0) return bad("no 'book' or 'version'");
  if (!is_whole && (book != book_ || version < version_)) return bad("of another book");
  const Json* const rows = json->find("models");
  const Json* const gone = json->find("gone");
  if (rows == nullptr || !rows->is_array() || gone == nullptr || !gone->is_array()) {
    return bad("no 'models' or 'gone'");
  }
  if (rows->as_array().size() > RegionBook::kModelsMax) return bad("too many models");
  RegionModels models = is_whole ? RegionModels() : models_;
  for (const Json& one : gone->as_array()) {
    if (!one.is_string()) return bad("no 'models' or 'gone'");
    models.erase(one.as_string());
  }
  for (const Json& row : rows->as_array()) {
    TRY_ASSIGN(auto read, read_row(row));
    models[std::move(read.first)] = read.second;
  }
  if (models.size() > RegionBook::kModelsMax) return bad("too many models");
  models_ = std::move(models);
  book_ = book;
  version_ = version;
  return {};
}

std::string region_mac(std::string_view secret, std::string_view nonce, std::string_view summary) {
  return base::hmac_sha256(secret, fmt::format("{}\n{}\n{}", kLabel, nonce, summary));
}

}  // namespace pelton::gateway

#include "capacity/capacity_file.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/toml_tree.h"

namespace pelton::capacity {
namespace {

using cli::TomlNode;
using NodeKind = TomlNode::Kind;

constexpr size_t kEntriesMax = 1000;
constexpr size_t kVariantsMax = 1000;
constexpr size_t kColumnsMax = 4000;
constexpr size_t kDemandsPerModelMax = 6;
constexpr size_t kCommonModesMax = 100;
constexpr size_t kTagsMax = 16;
constexpr size_t kTextMax = 64;
constexpr double kDaySeconds = 86'400;
constexpr double kMtbfDaysMin = 0.01;
constexpr double kMtbfDaysMax = 1e5;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

// One table of the file.
class Table {
 public:
  Table(const TomlNode& node, std::string name, const std::string& file)
      : node_(node), name_(std::move(name)), file_(file) {}

  Result<void> expect_only(std::initializer_list<std::string_view> known) const {
    return cli::expect_only_keys(node_, name_, file_, known);
  }

  Result<std::string> text(std::string_view key, std::optional<std::string> otherwise) const {
    const TomlNode* const value = node_.find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr) return bad(key, "is missing");
    return text_of(key, *value);
  }
  Result<std::vector<std::string>> texts(std::string_view key) const {
    const TomlNode* const value = node_.find(key);
    std::vector<std::string> texts;
    if (value == nullptr) return texts;
    if (value->kind != NodeKind::kList || value->items.size() > kTagsMax) {
      return bad(key, fmt::format("must be a list of up to {} texts", kTagsMax));
    }
    for (const TomlNode& item : value->items) {
      TRY_ASSIGN(std::string one, text_of(key, item));
      texts.push_back(std::move(one));
    }
    return texts;
  }
  struct Bounds {
    double least = 0;
    double most = 0;
  };
  Result<double> number(std::string_view key, std::optional<double> otherwise,
                        const Bounds& bounds) const {
    const TomlNode* const value = node_.find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr) return bad(key, "is missing");
    const bool is_number = value->kind == NodeKind::kInteger || value->kind == NodeKind::kNumber;
    if (!is_number || !(value->number >= bounds.least && value->number <= bounds.most)) {
      return bad(key, fmt::format("must be a number from {} to {}", bounds.least, bounds.most));
    }
    return value->number;
  }
  Result<int> whole(std::string_view key, std::optional<int> otherwise, int least, int most) const {
    const TomlNode* const value = node_.find(key);
    if (value != nullptr && value->kind != NodeKind::kInteger) {
      return bad(key, fmt::format("must be a whole number from {} to {}", least, most));
    }
    const Bounds bounds{static_cast<double>(least), static_cast<double>(most)};
    TRY_ASSIGN(const double read, number(key, otherwise, bounds));
    return static_cast<int>(read);
  }
  Result<bool> flag(std::string_view key) const {
    const TomlNode* const value = node_.find(key);
    if (value == nullptr) return false;
    if (value->kind != NodeKind::kBoolean) return bad(key, "must be true or false");
    return value->boolean;
  }

  Error bad(std::string_view key, std::string_view what) const {
    int line = node_.line;
    for (const cli::TomlMember& member : node_.members) {
      if (member.name == key) line = member.line;
    }
    return cli::bad_toml(file_, line, fmt::format("{}: '{}' {}", name_, key, what));
  }
  int line() const { return node_.line; }

 private:
  Result<std::string> text_of(std::string_view key, const TomlNode& value) const {
    if (value.kind != NodeKind::kText || value.text.empty() || value.text.size() > kTextMax ||
        !std::ranges::all_of(value.text, [](char c) { return c > ' ' && c <= '~'; })) {
      return bad(key, fmt::format("must be a text of 1 to {} letters without blanks", kTextMax));
    }
    return value.text;
  }

  const TomlNode& node_;
  const std::string name_;
  const std::string& file_;
};

class NeedsReader {
 public:
  NeedsReader(const TomlNode& root, const std::string& file) : root_(root), file_(file) {}

  Result<FleetNeeds> read() {
    TRY(Table(root_, "the file", file_)
            .expect_only({"plan", "capacity", "variant", "demand", "running", "availability",
                          "common_mode"}));
    TRY(read_plan());
    TRY(read_fault_rates());
    TRY(each("capacity", kEntriesMax, [this](const Table& table) { return read_entry(table); }));
    TRY(each("variant", kVariantsMax, [this](const Table& table) { return read_variant(table); }));
    TRY(each("demand", kVariantsMax, [this](const Table& table) { return read_demand(table); }));
    TRY(each("running", kColumnsMax, [this](const Table& table) { return read_running(table); }));
    TRY(each("common_mode", kCommonModesMax,
             [this](const Table& table) { return read_common_mode(table); }));
    if (needs_.entries.empty()) return cli::bad_toml(file_, 1, "no [[capacity]]");
    if (needs_.demands.empty()) return cli::bad_toml(file_, 1, "no [[demand]]");
    TRY(expect_bounded());
    return std::move(needs_);
  }

 private:
  template <typename Read>
  Result<void> each(std::string_view key, size_t most, const Read& read) {
    const TomlNode* const list = root_.find(key);
    if (list == nullptr) return {};
    const auto bad = [&](const TomlNode& node, std::string_view what) {
      return cli::bad_toml(file_, node.line, fmt::format("[[{}]] {}", key, what));
    };
    if (list->kind != NodeKind::kList) return bad(*list, "must be tables");
    if (list->items.size() > most) return bad(*list, fmt::format("are more than {}", most));
    for (const TomlNode& item : list->items) {
      if (item.kind != NodeKind::kTable) return bad(item, "must be tables");
      TRY(read(Table(item, std::string(key), file_)));
    }
    return {};
  }

  Result<void> read_plan() {
    const TomlNode* const node = root_.find("plan");
    if (node == nullptr) return {};
    if (node->kind != NodeKind::kTable)
      return cli::bad_toml(file_, node->line, "'plan' is no table");
    const Table table(*node, "plan", file_);
    TRY(table.expect_only({"currency", "survive_share", "survive", "switch_cost"}));
    TRY_ASSIGN(needs_.currency, table.text("currency", needs_.currency));
    TRY_ASSIGN(needs_.survive_share, table.number("survive_share", 0.6, {0, 1}));
    TRY_ASSIGN(needs_.switch_cost, table.number("switch_cost", 0, {0, 1e6}));
    TRY_ASSIGN(const std::vector<std::string> names, table.texts("survive"));
    if (node->find("survive") != nullptr) needs_.survive.clear();
    for (const std::string& name : names) {
      const auto* const found = std::ranges::find(kDomains, name, domain_name);
      if (found == kDomains.end()) {
        return table.bad("survive", "knows zone, region, provider and spot");
      }
      if (std::ranges::find(needs_.survive, *found) != needs_.survive.end()) continue;
      needs_.survive.push_back(*found);
    }
    return {};
  }

  Result<void> read_fault_rates() {
    const TomlNode* const node = root_.find("availability");
    if (node == nullptr) return {};
    if (node->kind != NodeKind::kTable) {
      return cli::bad_toml(file_, node->line, "'availability' is no table");
    }
    const Table table(*node, "availability", file_);
    TRY(table.expect_only({"objective", "detect_s", "shift_s", "start_s", "sheddable_share",
                           "replica_mtbf_days", "machine_mtbf_days", "zone_mtbf_days",
                           "region_mtbf_days", "provider_mtbf_days", "spot_mtbf_days",
                           "outage_s"}));
    FaultRates& faults = needs_.faults;
    const auto read = [&](std::string_view key, double& value,
                          Table::Bounds bounds) -> Result<void> {
      TRY_ASSIGN(value, table.number(key, value, bounds));
      return {};
    };
    TRY(read("objective", faults.objective, {0, 1}));
    TRY(read("detect_s", faults.detect_s, {0, kDaySeconds}));
    TRY(read("shift_s", faults.shift_s, {0, kDaySeconds}));
    TRY(read("start_s", faults.start_s, {0, kDaySeconds}));
    TRY(read("sheddable_share", faults.sheddable_share, {0, 1}));
    TRY(read("outage_s", faults.outage_s, {0, kMonthSeconds}));
    const std::pair<std::string_view, double*> every[] = {
        {"replica_mtbf_days", &faults.replica_mtbf_days},
        {"machine_mtbf_days", &faults.machine_mtbf_days},
        {"zone_mtbf_days", &faults.zone_mtbf_days},
        {"region_mtbf_days", &faults.region_mtbf_days},
        {"provider_mtbf_days", &faults.provider_mtbf_days},
        {"spot_mtbf_days", &faults.spot_mtbf_days}};
    for (const auto& [key, days] : every) {
      TRY(read(key, *days, {0, kMtbfDaysMax}));
      if (*days > 0 && *days < kMtbfDaysMin) {
        return table.bad(key, fmt::format("must be 0 (never) or from {} on", kMtbfDaysMin));
      }
    }
    return {};
  }
  Result<void> read_common_mode(const Table& table) {
    TRY(table.expect_only({"cause", "per_month", "share", "lasts_s"}));
    CommonMode mode;
    TRY_ASSIGN(mode.cause, table.text("cause", std::nullopt));
    TRY(expect_new(table, "cause", mode.cause, causes_));
    TRY_ASSIGN(mode.per_month, table.number("per_month", std::nullopt, {0, 1e4}));
    TRY_ASSIGN(mode.share, table.number("share", 1, {0, 1}));
    TRY_ASSIGN(mode.lasts_s, table.number("lasts_s", 300, {0, kMonthSeconds}));
    needs_.faults.common_modes.push_back(std::move(mode));
    return {};
  }

  // A name once, also in other letters: "EU-1" beside "eu-1" is a mistake.
  Result<void> expect_new(const Table& table, std::string_view key, const std::string& name,
                          std::map<std::string, std::string>& known) {
    const auto [at, is_new] = known.emplace(lower(name), name);
    if (is_new) return {};
    return table.bad(key, fmt::format("'{}' is there already as '{}'", name, at->second));
  }
  // Places may repeat, but not in other letters.
  Result<void> expect_one_spelling(const Table& table, std::string_view key,
                                   const std::string& name) {
    const auto [at, is_new] = spellings_.emplace(std::string(key) + "/" + lower(name), name);
    if (is_new || at->second == name) return {};
    return table.bad(key, fmt::format("'{}' differs from '{}' by case alone", name, at->second));
  }

  Result<void> read_entry(const Table& table) {
    TRY(table.expect_only({"name", "provider", "region", "zone", "machine", "gpus", "kind",
                           "price_per_hour", "quota", "lead_p50_s", "lead_p90_s", "stock",
                           "reclaim_per_hour", "notice_s", "egress_per_gb", "min_billing_s",
                           "residency", "away"}));
    Entry entry;
    TRY_ASSIGN(entry.name, table.text("name", std::nullopt));
    TRY(expect_new(table, "name", entry.name, entry_names_));
    TRY_ASSIGN(entry.provider, table.text("provider", std::nullopt));
    TRY_ASSIGN(entry.region, table.text("region", std::nullopt));
    TRY_ASSIGN(entry.zone, table.text("zone", "-"));
    TRY_ASSIGN(entry.machine, table.text("machine", std::nullopt));
    TRY(expect_one_spelling(table, "provider", entry.provider));
    TRY(expect_one_spelling(table, "region", entry.region));
    TRY(expect_one_spelling(table, "zone", entry.zone));
    TRY_ASSIGN(entry.gpus, table.whole("gpus", 1, 0, 1024));
    TRY(read_kind(table, entry));
    TRY_ASSIGN(entry.price, table.number("price_per_hour", std::nullopt, {0, 1e6}));
    TRY_ASSIGN(entry.quota, table.whole("quota", std::nullopt, 1, 100'000));
    TRY_ASSIGN(entry.egress_per_gb, table.number("egress_per_gb", 0, {0, 1000}));
    TRY_ASSIGN(entry.min_billing_s, table.number("min_billing_s", 3600, {1, kDaySeconds}));
    TRY_ASSIGN(entry.residency, table.texts("residency"));
    for (const std::string& tag : entry.residency)
      TRY(expect_one_spelling(table, "residency", tag));
    TRY_ASSIGN(entry.away, table.flag("away"));
    TRY(read_chances(table, entry));
    const std::string place = fmt::format("{}/{}/{}/{}/{}", entry.provider, entry.region,
                                          entry.zone, entry.machine, kind_name(entry.kind));
    const auto [at, is_new] = places_.emplace(place, entry.name);
    if (!is_new) {
      return table.bad("name", fmt::format("'{}' is the same machine, kind and place as '{}'",
                                           entry.name, at->second));
    }
    needs_.entries.push_back(std::move(entry));
    return {};
  }
  static Result<void> read_kind(const Table& table, Entry& entry) {
    TRY_ASSIGN(const std::string kind, table.text("kind", "on_demand"));
    constexpr Kind kKinds[] = {Kind::kReserved, Kind::kOnDemand, Kind::kSpot};
    const auto* const found = std::ranges::find(kKinds, kind, kind_name);
    if (found == std::end(kKinds)) return table.bad("kind", "knows reserved, on_demand and spot");
    entry.kind = *found;
    return {};
  }
  static Result<void> read_chances(const Table& table, Entry& entry) {
    TRY_ASSIGN(entry.lead_p50_s, table.number("lead_p50_s", 60, {0, kDaySeconds}));
    const double p90 = std::max(120.0, entry.lead_p50_s);
    TRY_ASSIGN(entry.lead_p90_s, table.number("lead_p90_s", p90, {0, kDaySeconds}));
    if (entry.lead_p90_s < entry.lead_p50_s) return table.bad("lead_p90_s", "is below lead_p50_s");
    TRY_ASSIGN(entry.stock, table.number("stock", 1, {0.001, 1}));
    TRY_ASSIGN(entry.reclaim_per_h, table.number("reclaim_per_hour", 0, {0, 60}));
    TRY_ASSIGN(entry.notice_s, table.number("notice_s", 0, {0, kDaySeconds}));
    if (entry.kind != Kind::kSpot && entry.reclaim_per_h > 0) {
      return table.bad("reclaim_per_hour", "is of kind spot alone");
    }
    return {};
  }

  Result<void> read_variant(const Table& table) {
    TRY(table.expect_only({"name", "model", "machine", "machines", "rate"}));
    Variant variant;
    TRY_ASSIGN(variant.name, table.text("name", std::nullopt));
    TRY(expect_new(table, "name", variant.name, variant_names_));
    TRY_ASSIGN(variant.model, table.text("model", std::nullopt));
    TRY_ASSIGN(variant.machine, table.text("machine", std::nullopt));
    TRY_ASSIGN(variant.machines, table.whole("machines", 1, 1, 1000));
    TRY_ASSIGN(variant.rate, table.number("rate", std::nullopt, {1e-3, 1e6}));
    if (std::ranges::find(needs_.entries, variant.machine, &Entry::machine) ==
        needs_.entries.end()) {
      return table.bad("machine", fmt::format("'{}' is of no [[capacity]]", variant.machine));
    }
    needs_.variants.push_back(std::move(variant));
    return {};
  }

  Result<void> read_demand(const Table& table) {
    TRY(table.expect_only({"model", "residency", "rate", "answer_kb"}));
    Demand demand;
    TRY_ASSIGN(demand.model, table.text("model", std::nullopt));
    TRY_ASSIGN(demand.residency, table.texts("residency"));
    TRY_ASSIGN(demand.rate, table.number("rate", std::nullopt, {1e-3, 1e6}));
    TRY_ASSIGN(demand.answer_kb, table.number("answer_kb", 0, {0, 1e6}));
    if (std::ranges::find(needs_.variants, demand.model, &Variant::model) ==
        needs_.variants.end()) {
      return table.bad("model", fmt::format("'{}' has no [[variant]]", demand.model));
    }
    for (const std::string& tag : demand.residency) {
      if (spellings_.contains("residency/" + lower(tag))) {
        TRY(expect_one_spelling(table, "residency", tag));
        continue;
      }
      return table.bad("residency", fmt::format("'{}' is of no [[capacity]]", tag));
    }
    const auto same = std::ranges::count(needs_.demands, demand.model, &Demand::model);
    if (static_cast<size_t>(same) >= kDemandsPerModelMax) {
      return table.bad("model", fmt::format("'{}' has more than {} classes of residency",
                                            demand.model, kDemandsPerModelMax));
    }
    needs_.demands.push_back(std::move(demand));
    return {};
  }

  Result<void> read_running(const Table& table) {
    TRY(table.expect_only({"capacity", "variant", "replicas"}));
    Running running;
    TRY_ASSIGN(running.entry, table.text("capacity", std::nullopt));
    TRY_ASSIGN(running.variant, table.text("variant", std::nullopt));
    TRY_ASSIGN(running.replicas, table.whole("replicas", std::nullopt, 0, 100'000));
    if (std::ranges::find(needs_.entries, running.entry, &Entry::name) == needs_.entries.end()) {
      return table.bad("capacity", fmt::format("'{}' is no [[capacity]]", running.entry));
    }
    if (std::ranges::find(needs_.variants, running.variant, &Variant::name) ==
        needs_.variants.end()) {
      return table.bad("variant", fmt::format("'{}' is no [[variant]]", running.variant));
    }
    needs_.running.push_back(std::move(running));
    return {};
  }

  // Of what is to be searched.
  Result<void> expect_bounded() const {
    size_t columns = 0;
    for (const Variant& variant : needs_.variants) {
      columns +=
          static_cast<size_t>(std::ranges::count(needs_.entries, variant.machine, &Entry::machine));
    }
    if (columns <= kColumnsMax) return {};
    return cli::bad_toml(
        file_, 1,
        fmt::format("{} pairs of a variant and a capacity that has its machine; at most {}",
                    columns, kColumnsMax));
  }

  const TomlNode& root_;
  const std::string& file_;
  FleetNeeds needs_;
  std::map<std::string, std::string> entry_names_;
  std::map<std::string, std::string> variant_names_;
  std::map<std::string, std::string> causes_;
  std::map<std::string, std::string> spellings_;
  std::map<std::string, std::string> places_;
};

}  // namespace

Result<FleetNeeds> parse_needs(std::string_view text, const std::string& file) {
  TRY_ASSIGN(const TomlNode root, cli::parse_toml(text, file));
  return NeedsReader(root, file).read();
}

Result<FleetNeeds> read_needs(const std::string& file) {
  TRY_ASSIGN(const TomlNode root, cli::read_toml(file));
  return NeedsReader(root, file).read();
}

}  // namespace pelton::capacity

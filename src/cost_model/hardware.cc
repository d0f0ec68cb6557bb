#include "cost_model/hardware.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/file.h"
#include "cost_model/built_in_data.h"

namespace pelton::cost_model {
namespace {

constexpr std::pair<Arithmetic, std::string_view> kArithmetic[] = {{Arithmetic::kF32, "f32"},
                                                                   {Arithmetic::kBf16, "bf16"},
                                                                   {Arithmetic::kInt8, "int8"},
                                                                   {Arithmetic::kFp8, "fp8"},
                                                                   {Arithmetic::kFp4, "fp4"}};
constexpr double kFigureMax = 1e18;

// A figure of the file: there, finite, within reason, and with a source.
class Figures {
 public:
  Figures(const Json& json, const std::string& origin) : json_(json), origin_(origin) {}

  Result<double> read(const std::string& name, double least) const {
    const Json* const figures = json_.find("figures");
    const std::optional<double> value = figures ? figures->number(name) : std::nullopt;
    if (!value) return bad("figures." + name, "is missing or no number");
    if (!(*value >= least && *value <= kFigureMax)) {
      return bad("figures." + name, fmt::format("is {}; it must be {} to 1e18", *value, least));
    }
    const Json* const sources = json_.find("sources");
    if (!sources || sources->string(name).value_or("").empty()) {
      return bad("sources." + name, "is missing: every figure says where it comes from");
    }
    return *value;
  }

  Error bad(const std::string& field, const std::string& what) const {
    return Error{ErrorCode::kBadConfig, fmt::format("{}: {} {}", origin_, field, what), field};
  }

 private:
  const Json& json_;
  const std::string& origin_;
};

Result<Json> parse_file(std::string_view text, const std::string& origin) {
  Result<Json> json = Json::parse(text);
  if (json.ok()) return json;
  return Error{ErrorCode::kBadConfig, fmt::format("{}: {}", origin, json.error().message), ""};
}

}  // namespace

std::string_view arithmetic_name(Arithmetic arithmetic) {
  for (const auto& [value, name] : kArithmetic) {
    if (value == arithmetic) return name;
  }
  return "?";
}

Result<Arithmetic> parse_arithmetic(std::string_view name) {
  for (const auto& [value, known] : kArithmetic) {
    if (known == name) return value;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is no arithmetic; f32, bf16, int8, fp8 and fp4 are", name), ""};
}

Result<double> Hardware::rate(Arithmetic arithmetic) const {
  const auto found = rates.find(arithmetic);
  if (found != rates.end()) return found->second;
  std::vector<std::string_view> known;
  for (const auto& [other, rate] : rates) known.push_back(arithmetic_name(other));
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} ({}) cannot compute in {}; it computes in {}", title, architecture,
                           arithmetic_name(arithmetic), fmt::join(known, ", ")),
               "compute"};
}

bool Hardware::is_processor() const {
  return architecture.starts_with("x86") || architecture.starts_with("aarch64");
}

Result<Hardware> parse_hardware(const Json& json, const std::string& origin) {
  const Figures figures(json, origin);
  Hardware hardware{.name = json.string("name").value_or(""),
                    .title = json.string("title").value_or(""),
                    .architecture = json.string("architecture").value_or(""),
                    .link = json.string("link").value_or("")};
  if (hardware.name.empty()) return figures.bad("name", "is missing");
  if (hardware.title.empty()) hardware.title = hardware.name;
  TRY_ASSIGN(const double memory, figures.read("memory_bytes", 1));
  TRY_ASSIGN(hardware.bytes_per_second, figures.read("bytes_per_second", 1));
  TRY_ASSIGN(hardware.link_bytes_per_second, figures.read("link_bytes_per_second", 0));
  TRY_ASSIGN(hardware.link_latency_seconds, figures.read("link_latency_seconds", 0));
  TRY_ASSIGN(const double domain, figures.read("link_domain", 1));
  TRY_ASSIGN(hardware.watts, figures.read("watts", 0));
  hardware.memory_bytes = static_cast<int64_t>(memory);
  hardware.link_domain = static_cast<int>(std::min(domain, 1e6));
  for (const auto& [arithmetic, name] : kArithmetic) {
    const std::string key = fmt::format("rate_{}", name);
    if (!json.find("figures")->find(key)) continue;
    TRY_ASSIGN(hardware.rates[arithmetic], figures.read(key, 1));
  }
  if (hardware.rates.empty()) return figures.bad("figures", "has no rate_bf16 nor any other rate");
  for (const Json::Member& source : json.find("sources")->as_object()) {
    if (source.value.is_string()) hardware.sources[source.key] = source.value.as_string();
  }
  return hardware;
}

Result<Hardware> find_hardware(const std::string& name) {
  if (name.ends_with(".json")) {
    TRY_ASSIGN(const std::string text, base::read_file(name));
    TRY_ASSIGN(const Json json, parse_file(text, name));
    return parse_hardware(json, name);
  }
  const std::optional<std::string_view> text = find_data("hardware/" + name + ".json");
  if (!text) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("no hardware is called '{}'; known are {}, and files of your own",
                             name, fmt::join(data_names("hardware/"), ", ")),
                 "gpu"};
  }
  TRY_ASSIGN(const Json json, parse_file(*text, name));
  return parse_hardware(json, name);
}

namespace {

std::optional<InstanceFit> fit_of(const Json& instance) {
  const Json* const fit = instance.find("fit");
  if (fit == nullptr) return std::nullopt;
  return InstanceFit{.bandwidth = fit->number("bandwidth").value(),
                     .compute = fit->number("compute").value(),
                     .step_s = fit->number("step_s").value(),
                     .error_p90 = fit->number("error_p90").value(),
                     .source = fit->string("source").value()};
}

}  // namespace

std::vector<Instance> instances() {
  const Result<Json> json = Json::parse(*find_data("instances.json"));
  CHECK(json.ok());
  std::vector<Instance> found;
  for (const Json& one : json->find("instances")->as_array()) {
    found.push_back({.name = one.string("name").value(),
                     .gpu = one.string("gpu").value(),
                     .count = static_cast<int>(one.integer("count").value()),
                     .price_per_hour = one.number("price_per_hour").value(),
                     .host_memory_bytes = one.integer("host_memory_bytes").value(),
                     .source = one.string("source").value(),
                     .fit = fit_of(one)});
  }
  return found;
}

Result<Instance> find_instance(const std::string& name) {
  std::vector<std::string> names;
  for (Instance& instance : instances()) {
    if (instance.name == name) return std::move(instance);
    names.push_back(std::move(instance.name));
  }
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("no instance is called '{}'; known are {}", name, fmt::join(names, ", ")),
      "instance"};
}

}  // namespace pelton::cost_model

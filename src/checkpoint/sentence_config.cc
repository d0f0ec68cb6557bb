#include "checkpoint/sentence_config.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/foreign_text.h"

namespace pelton::checkpoint {
namespace {

constexpr size_t kBytesMax = size_t{1} << 20;
constexpr size_t kModulesMax = 16;
constexpr size_t kPromptsMax = 256;
constexpr size_t kPromptBytesMax = 16384;
constexpr int64_t kTokensMax = 1 << 24;

Error bad(const std::string& file, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", file, what)};
}

Error unsupported(const std::string& file, const std::string& what) {
  return Error{ErrorCode::kUnsupported, fmt::format("{}: {}", file, what)};
}

// Nothing if there is no such file.
Result<std::optional<Json>> read_json(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::optional<Json>();
  TRY_ASSIGN(const std::string text, base::read_file(file, kBytesMax));
  Result<Json> json = Json::parse(text);
  if (json.ok()) return std::optional(std::move(json).value());
  return bad(file, json.error().message);
}

// "sentence_transformers.models.Pooling" -> "Pooling"
std::string_view last_part(std::string_view type) {
  const size_t dot = type.rfind('.');
  return dot == std::string_view::npos ? type : type.substr(dot + 1);
}

Result<void> read_pooling_module(const std::string& folder, const std::string& path,
                                 SentenceConfig& config) {
  const bool is_plain = !path.empty() && path != "." && path != ".." &&
                        path.find('/') == std::string::npos && path.find('\0') == std::string::npos;
  if (!is_plain) {
    return bad(folder + "/modules.json",
               fmt::format("the path {} is no folder beside it", shown(path)));
  }
  const std::string file = fmt::format("{}/{}/config.json", folder, path);
  TRY_ASSIGN(const std::optional<Json> json, read_json(file));
  if (!json) return bad(file, "is missing; modules.json names it");
  TRY_ASSIGN(config.pooling, parse_pooling(*json, file));
  return {};
}

Result<void> read_modules(const std::string& folder, SentenceConfig& config) {
  const std::string file = folder + "/modules.json";
  TRY_ASSIGN(const std::optional<Json> modules, read_json(file));
  if (!modules) return {};
  if (!modules->is_array() || modules->as_array().size() > kModulesMax) {
    return bad(file, fmt::format("must be a list of at most {} modules", kModulesMax));
  }
  for (const Json& module : modules->as_array()) {
    if (!module.is_object()) return bad(file, "holds a module that is no object");
    const std::string type = module.string("type").value_or("");
    const std::string_view kind = last_part(type);
    if (kind == "Transformer") continue;
    if (kind == "Pooling") {
      TRY(read_pooling_module(folder, module.string("path").value_or(""), config));
    } else if (kind == "Normalize") {
      config.normalises = true;
    } else {
      return unsupported(file, fmt::format("has the module {}; supported: Transformer, Pooling, "
                                           "Normalize",
                                           shown(type)));
    }
  }
  return {};
}

}  // namespace

std::string_view pooling_name(SentencePooling pooling) {
  switch (pooling) {
    case SentencePooling::kFirst:
      return "cls";
    case SentencePooling::kMean:
      return "mean";
    case SentencePooling::kLast:
      break;
  }
  return "last";
}

const std::string* SentenceConfig::prompt(std::string_view name) const {
  for (const auto& [known, text] : prompts) {
    if (known == name) return &text;
  }
  return nullptr;
}

Result<SentencePooling> parse_pooling(const Json& json, const std::string& file) {
  if (!json.is_object()) return bad(file, "must be an object");
  constexpr std::string_view kPrefix = "pooling_mode_";
  constexpr std::pair<std::string_view, SentencePooling> kModes[] = {
      {"cls_token", SentencePooling::kFirst}, {"mean_tokens", SentencePooling::kMean},
      {"lasttoken", SentencePooling::kLast},  {"cls", SentencePooling::kFirst},
      {"mean", SentencePooling::kMean},
  };
  std::vector<std::string> chosen;
  if (const std::optional<std::string> one = json.string("pooling_mode")) chosen.push_back(*one);
  for (const Json::Member& member : json.as_object()) {
    if (std::string_view(member.key).starts_with(kPrefix) && member.value == Json(true)) {
      chosen.push_back(member.key.substr(kPrefix.size()));
    }
  }
  if (chosen.size() != 1) {
    return unsupported(file, fmt::format("chooses {} ways of pooling; supported: one of "
                                         "pooling_mode_cls_token, pooling_mode_mean_tokens, "
                                         "pooling_mode_lasttoken",
                                         chosen.size()));
  }
  for (const auto& [name, pooling] : kModes) {
    if (chosen[0] == name) return pooling;
  }
  return unsupported(file, fmt::format("pools by {}; supported: cls_token, mean_tokens, lasttoken",
                                       shown(chosen[0])));
}

Result<void> parse_prompts(const Json& json, const std::string& file, SentenceConfig& config) {
  if (!json.is_object()) return bad(file, "must be an object");
  const Json* prompts = json.find("prompts");
  if (prompts != nullptr && !prompts->is_null()) {
    if (!prompts->is_object() || prompts->as_object().size() > kPromptsMax) {
      return bad(file, fmt::format("prompts must be an object of at most {} texts", kPromptsMax));
    }
    for (const Json::Member& member : prompts->as_object()) {
      if (!member.value.is_string() || member.value.as_string().size() > kPromptBytesMax) {
        return bad(file, fmt::format("prompts[{}] must be a text of at most {} bytes",
                                     shown(member.key), kPromptBytesMax));
      }
      config.prompts.emplace_back(member.key, member.value.as_string());
    }
  }
  config.default_prompt = json.string("default_prompt_name").value_or("");
  if (config.default_prompt.empty() || config.prompt(config.default_prompt) != nullptr) return {};
  return bad(file, fmt::format("default_prompt_name is {}, which prompts does not have",
                               shown(config.default_prompt)));
}

Result<SentenceConfig> read_sentence_config(const std::string& folder) {
  SentenceConfig config;
  TRY(read_modules(folder, config));
  const std::string prompts_file = folder + "/config_sentence_transformers.json";
  TRY_ASSIGN(const std::optional<Json> prompts, read_json(prompts_file));
  if (prompts) TRY(parse_prompts(*prompts, prompts_file, config));
  const std::string lengths_file = folder + "/sentence_bert_config.json";
  TRY_ASSIGN(const std::optional<Json> lengths, read_json(lengths_file));
  const Json* most = lengths ? lengths->find("max_seq_length") : nullptr;
  if (most == nullptr || most->is_null()) return config;
  if (!most->is_integer() || most->as_integer() < 1 || most->as_integer() > kTokensMax) {
    return bad(lengths_file,
               fmt::format("max_seq_length must be an integer from 1 to {}", kTokensMax));
  }
  config.tokens_max = static_cast<int>(most->as_integer());
  return config;
}

}  // namespace pelton::checkpoint

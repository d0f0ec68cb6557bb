#include "chain/chain.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chain/chain_check.h"
#include "chain/chain_file.h"
#include "cli/command_line.h"

namespace pelton::chain {

const Step* Chain::find(std::string_view step) const {
  const auto found = std::ranges::find_if(steps, [&](const Step& one) { return one.name == step; });
  return found == steps.end() ? nullptr : &*found;
}

Result<Chain> parse_chain(std::string_view text, const std::string& file) {
  TRY_ASSIGN(const cli::TomlNode root, cli::parse_toml(text, file));
  TRY_ASSIGN(Chain chain, read_chain_tables(root, file));
  TRY(check_chain(chain));
  return chain;
}

Result<Chain> read_chain(const std::string& file) {
  TRY_ASSIGN(const cli::TomlNode root, cli::read_toml(file));
  TRY_ASSIGN(Chain chain, read_chain_tables(root, file));
  TRY(check_chain(chain));
  return chain;
}

Result<std::vector<Chain>> read_chains(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() == ".toml") files.push_back(entry->path().string());
  }
  const auto bad = [](std::string message) {
    return Error{ErrorCode::kBadConfig, std::move(message), {}};
  };
  if (failed) return bad(fmt::format("{}: {}", folder, failed.message()));
  if (files.empty()) return bad(fmt::format("{}: there is no chain, no file *.toml", folder));
  std::ranges::sort(files);
  std::vector<Chain> chains;
  for (const std::string& file : files) {
    TRY_ASSIGN(Chain chain, read_chain(file));
    for (const Chain& before : chains) {
      if (before.name != chain.name) continue;
      return bad(
          fmt::format("{}: a chain '{}' stands in {} already", file, chain.name, before.file));
    }
    chains.push_back(std::move(chain));
  }
  return chains;
}

Result<void> check_input(const Chain& chain, const Json& input) {
  const auto bad = [](const std::string& field, std::string_view what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' {}", field, what), field};
  };
  if (!input.is_object())
    return bad("input", fmt::format("must be an object, and is {}", input.kind_name()));
  std::vector<std::string> names;
  for (const Type::Field& field : chain.input) names.push_back(field.name);
  for (const Json::Member& member : input.as_object()) {
    if (std::ranges::find(names, member.key) != names.end()) continue;
    const std::optional<std::string> near = cli::nearest(member.key, names);
    return bad("input." + member.key,
               fmt::format("is none of the chain '{}'{}; it has {}", chain.name,
                           near ? fmt::format("; did you mean '{}'?", *near) : "",
                           fmt::join(names, ", ")));
  }
  for (const Type::Field& field : chain.input) {
    const Json* const value = input.find(field.name);
    if (value == nullptr && !field.type.optional) {
      return bad("input." + field.name, fmt::format("is missing: {}", type_text(field.type)));
    }
    if (value != nullptr && !holds(field.type, *value)) {
      return bad("input." + field.name,
                 fmt::format("must be {}, and is {}", type_text(field.type), value->kind_name()));
    }
  }
  return {};
}

std::string_view endpoint_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
      return "chat";
    case Endpoint::kCompletions:
      return "completions";
    case Endpoint::kEmbeddings:
      return "embeddings";
    case Endpoint::kRerank:
      return "rerank";
  }
  return "";
}

std::string use_text(const Step& step) {
  if (step.kind == Step::Kind::kBuiltin) return fmt::format("builtin:{}", step.builtin->name);
  if (step.kind == Step::Kind::kHttp) return fmt::format("http:{}", step.target);
  return fmt::format("model:{}", step.target);
}

}  // namespace pelton::chain

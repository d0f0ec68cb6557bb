// The keys of rank_pattern and alpha_pattern: regular expressions for the end of a module's path,
// of which the first that fits counts (PEFT's get_pattern_key). Immutable once made; one thread at
// a time may match.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::lora {

class ModulePatterns {
 public:
  static constexpr size_t kPatternsMax = 2048;

  ModulePatterns();
  ~ModulePatterns();
  ModulePatterns(ModulePatterns&&) noexcept;
  ModulePatterns& operator=(ModulePatterns&&) noexcept;

  // An object of numbers. `field`, its name, is for messages. Errors: kInvalidArgument.
  static Result<ModulePatterns> compile(const Json& table, std::string_view field);

  // The number of the first key that (.*\.)?(KEY)$ matches in one of the paths, from its beginning:
  // with the keys "layers.1.self_attn.q_proj" and "q_proj" a path of "model.layers.1.self_attn.
  // q_proj" has the first one's, one of layer 0 the second's. kInvalidArgument where matching a key
  // takes too long.
  Result<std::optional<double>> find(std::span<const std::string> paths) const;

  // Every number of the table, in its order.
  std::vector<double> values() const;

 private:
  struct Pattern;

  std::string field_;
  std::vector<Pattern> patterns_;
};

}  // namespace pelton::lora

// target_modules, target_parameters and exclude_modules: which modules PEFT wraps by them. The
// tensors decide what is adapted; one of a module that PEFT would leave out by these fields is a
// contradiction, as it would be computed with here and not there. One thread at a time may ask.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "lora/path_pattern.h"

namespace pelton::lora {

class ModuleTargets {
 public:
  // Errors: kInvalidArgument, the field first.
  static Result<ModuleTargets> read(const Json& config);

  // A module's paths: in the model, and as the file has it; of experts that lie in one parameter
  // (`is_parameter`) those of the parameter and of the module. What says that it has no adapter, as
  // the end of a sentence that begins with the module: "is not among target_modules"; nothing: it
  // may have one. Errors: as read().
  Result<std::optional<std::string>> contradiction(std::span<const std::string> paths,
                                                   bool is_parameter) const;

 private:
  static constexpr size_t kNamesMax = 65'536;

  // A list of names, each a path or what one ends with behind a dot; or one regular expression of
  // whole paths.
  struct Field {
    bool is_given = false;
    bool is_all = false;  // "all-linear"
    std::vector<std::string> names = {};
    std::optional<PathPattern> pattern = {};
  };
  static Result<Field> read_field(const Json& config, std::string_view name);
  static Result<bool> has(const Field& field, std::string_view name,
                          std::span<const std::string> paths);

  Field modules_;
  Field parameters_;
  Field excluded_;
};

}  // namespace pelton::lora

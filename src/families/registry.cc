#include "families/registry.h"

#include <fmt/format.h>

#include "families/gpt_oss.h"
#include "families/llama.h"
#include "families/qwen3.h"

namespace pelton::families {
namespace {

constexpr const Family* kFamilies[] = {
    &kGptOss,
    &kLlama,
    &kQwen3,
};

}  // namespace

std::span<const Family* const> all_families() {
  return kFamilies;
}

const Family* find_family(std::string_view architecture, std::string_view model_type) {
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture && family->model_type == model_type) return family;
  }
  return nullptr;
}

const Family* find_gguf_family(std::string_view architecture) {
  for (const Family* family : kFamilies) {
    if (family->gguf != nullptr && family->gguf->architecture == architecture) return family;
  }
  return nullptr;
}

std::string supported_families() {
  std::string text;
  for (const Family* family : kFamilies) {
    text += fmt::format("{}[\"{}\"] with model_type \"{}\"", text.empty() ? "" : ", ",
                        family->architecture, family->model_type);
  }
  return text;
}

}  // namespace pelton::families

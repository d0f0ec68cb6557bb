#include "families/tensor_names.h"

#include <charconv>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "families/encoder_names.h"
#include "families/family.h"

namespace pelton::families {
namespace {

constexpr std::string_view kLayers = "model.layers.";

struct Prefix {
  std::string_view stored;
  std::string_view ours;
};

// The first that fits. The last three: files of a model without head leave "model." out.
constexpr Prefix kPrefixes[] = {
    {"language_model.model.", "model."},
    {"model.language_model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"embed_tokens.", "model.embed_tokens."},
    {"layers.", "model.layers."},
    {"norm.", "model.norm."},
};

// Of pictures and sounds.
constexpr std::string_view kOtherModalities[] = {
    "vision_tower.",       "multi_modal_projector.",       "visual.",      "audio_tower.",
    "model.vision_tower.", "model.multi_modal_projector.", "model.visual."};

struct InLayer {
  int layer = 0;
  std::string_view rest;  // behind "model.layers.N."
};

std::optional<InLayer> in_layer(std::string_view name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  InLayer found;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), found.layer);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc{} || digits > 6 || digits >= name.size() || name[digits] != '.') {
    return std::nullopt;
  }
  found.rest = name.substr(digits + 1);
  return found;
}

// `text` by `to` if `from` fits it, the number in place of "*" kept.
std::optional<std::string> renamed(std::string_view text, std::string_view from,
                                   std::string_view to) {
  const size_t star = from.find('*');
  if (star == std::string_view::npos) {
    if (text != from) return std::nullopt;
    return std::string(to);
  }
  const std::string_view front = from.substr(0, star);
  const std::string_view back = from.substr(star + 1);
  if (text.size() <= front.size() + back.size() || !text.starts_with(front) ||
      !text.ends_with(back)) {
    return std::nullopt;
  }
  const std::string_view number =
      text.substr(front.size(), text.size() - front.size() - back.size());
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const size_t place = to.find('*');
  return fmt::format("{}{}{}", to.substr(0, place), number, to.substr(place + 1));
}

// The scales of a tensor go by its name.
constexpr std::string_view kScales[] = {"_scale_inv", "_scale"};
// And what integer weights have in place of "weight".
constexpr std::string_view kWeight = "weight";
constexpr std::string_view kOfIntegers[] = {
    "qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_shape", "weight_zero_point"};

std::string renamed_by(std::span<const NamePair> table, std::string_view rest, bool to_ours) {
  std::string_view name = rest;
  for (const std::string_view scales : kScales) {
    if (name.ends_with(scales)) name.remove_suffix(scales.size());
  }
  for (const std::string_view part : kOfIntegers) {
    if (!name.ends_with(part)) continue;
    const std::string front(name.substr(0, name.size() - part.size()));
    const std::string weight = renamed_by(table, front + std::string(kWeight), to_ours);
    return weight.substr(0, weight.size() - kWeight.size()) + std::string(part);
  }
  for (const NamePair& pair : table) {
    const auto found =
        to_ours ? renamed(name, pair.foreign, pair.ours) : renamed(name, pair.ours, pair.foreign);
    if (found) return *found + std::string(rest.substr(name.size()));
  }
  return std::string(rest);
}

// How activations, keys and values would be quantized: ours are not, or by scales of their own.
bool is_activation_scale(std::string_view name) {
  return name.ends_with(".input_scale") || name.ends_with(".k_scale") || name.ends_with(".v_scale");
}

}  // namespace

std::string tensor_name(const ModelConfig& config, std::string_view stored) {
  if (config.is_encoder()) return encoder_tensor_name(config, stored);
  for (const std::string_view other : kOtherModalities) {
    if (stored.starts_with(other)) return "";
  }
  std::string name(stored);
  for (const Prefix& prefix : kPrefixes) {
    if (!stored.starts_with(prefix.stored)) continue;
    name = std::string(prefix.ours) + std::string(stored.substr(prefix.stored.size()));
    break;
  }
  const std::optional<InLayer> found = in_layer(name);
  if (!found) return name;
  const bool drafts = found->layer >= config.layer_count() &&
                      found->layer < config.layer_count() + config.draft_layer_count;
  if (drafts || is_activation_scale(found->rest)) return "";
  if (found->rest == "self_attn.rotary_emb.inv_freq") return "";
  // compressed-tensors' name of what DeepSeek calls weight_scale_inv; the numbers are the same.
  const bool is_block_scale = config.quantization == WeightQuantization::kF8Blocks &&
                              found->rest.ends_with(".weight_scale");
  return fmt::format("{}{}.{}{}", kLayers, found->layer,
                     renamed_by(config.family->layer_names, found->rest, true),
                     is_block_scale ? "_inv" : "");
}

std::string published_name(const ModelConfig& config, std::string_view name) {
  if (config.is_encoder()) return encoder_published_name(config, name);
  const std::optional<InLayer> found = in_layer(name);
  if (!found) return std::string(name);
  return fmt::format("{}{}.{}", kLayers, found->layer,
                     renamed_by(config.family->layer_names, found->rest, false));
}

}  // namespace pelton::families

#include "bench/speculation_counts.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace pelton::bench {
namespace {

constexpr size_t kPlacesMax = 64;

// "NAME{LABELS} VALUE"
struct Sample {
  std::string_view name;
  std::string_view labels;
  double value = 0;
};

std::optional<Sample> sample_of(std::string_view line) {
  if (line.empty() || line.front() == '#') return std::nullopt;
  const size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return std::nullopt;
  Sample sample{.name = line.substr(0, space)};
  const std::string_view number = line.substr(space + 1);
  const auto [end, failure] =
      std::from_chars(number.data(), number.data() + number.size(), sample.value);
  if (failure != std::errc{} || end != number.data() + number.size()) return std::nullopt;
  if (!std::isfinite(sample.value) || sample.value < 0) return std::nullopt;
  const size_t brace = sample.name.find('{');
  if (brace != std::string_view::npos) {
    sample.labels = sample.name.substr(brace);
    sample.name = sample.name.substr(0, brace);
  }
  return sample;
}

// The label "position"; kPlacesMax: there is none that makes sense.
size_t place_of(std::string_view labels) {
  constexpr std::string_view kLabel = "position=\"";
  const size_t at = labels.find(kLabel);
  size_t place = kPlacesMax;
  if (at == std::string_view::npos) return place;
  const std::string_view number = labels.substr(at + kLabel.size());
  const auto result = std::from_chars(number.data(), number.data() + number.size(), place);
  return result.ec == std::errc{} ? place : kPlacesMax;
}

void add(SpeculationCounts& counts, const Sample& sample) {
  const std::string_view name = sample.name;
  if (name == "vllm:spec_decode_num_drafts_total") counts.drafts += sample.value;
  if (name == "vllm:spec_decode_num_draft_tokens_total") counts.draft_tokens += sample.value;
  if (name == "vllm:spec_decode_num_accepted_tokens_total") counts.accepted_tokens += sample.value;
  if (name == "pelton_spec_decode_draft_seconds_total") counts.draft_s += sample.value;
  if (name == "pelton_spec_decode_step_seconds_total") counts.step_s += sample.value;
  if (name != "vllm:spec_decode_num_accepted_tokens_per_pos_total") return;
  const size_t place = place_of(sample.labels);
  if (place >= kPlacesMax) return;
  if (counts.accepted_by_place.size() <= place) counts.accepted_by_place.resize(place + 1);
  counts.accepted_by_place[place] += sample.value;
}

}  // namespace

SpeculationCounts SpeculationCounts::since(const SpeculationCounts& before) const {
  SpeculationCounts counts = *this;
  counts.drafts -= before.drafts;
  counts.draft_tokens -= before.draft_tokens;
  counts.accepted_tokens -= before.accepted_tokens;
  counts.draft_s -= before.draft_s;
  counts.step_s -= before.step_s;
  const size_t places = std::min(accepted_by_place.size(), before.accepted_by_place.size());
  for (size_t i = 0; i < places; ++i) counts.accepted_by_place[i] -= before.accepted_by_place[i];
  return counts;
}

std::optional<SpeculationCounts> parse_speculation(std::string_view page) {
  if (page.find("vllm:spec_decode_num_drafts_total") == std::string_view::npos) return std::nullopt;
  SpeculationCounts counts;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    if (const std::optional<Sample> sample = sample_of(page.substr(0, end))) add(counts, *sample);
    page.remove_prefix(std::min(end + 1, page.size()));
  }
  return counts;
}

std::string speculation_text(const SpeculationCounts& counts) {
  if (counts.drafts <= 0) return "";
  const auto line = [](std::string_view name, double value, int digits) {
    return fmt::format("{:<40} {:<10.{}f}\n", name, value, digits);
  };
  std::string text = fmt::format("{:-^50}\n", "Speculative Decoding");
  text += line(
      "Acceptance rate (%):", 100 * counts.accepted_tokens / std::max(counts.draft_tokens, 1.0), 2);
  text += line("Acceptance length:", 1 + counts.accepted_tokens / counts.drafts, 2);
  text += line("Drafts:", counts.drafts, 0);
  text += line("Draft tokens:", counts.draft_tokens, 0);
  text += line("Accepted tokens:", counts.accepted_tokens, 0);
  if (counts.step_s > 0) {
    text += line("Time spent drafting (%):", 100 * counts.draft_s / counts.step_s, 2);
  }
  text += "Per-position acceptance (%):\n";
  for (size_t place = 0; place < counts.accepted_by_place.size(); ++place) {
    const double accepted = counts.accepted_by_place[place];
    if (accepted <= 0) break;
    text += line(fmt::format("  Position {}:", place), 100 * accepted / counts.drafts, 2);
  }
  return text + std::string(50, '=') + "\n";
}

}  // namespace pelton::bench

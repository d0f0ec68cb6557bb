#include "apps/sampling_defaults.h"

#include <string>

#include "checkpoint/generation_defaults.h"

namespace pelton::apps {

cli::Flag generation_config_flag() {
  return {.name = "--generation-config",
          .value = "WHICH",
          .help = "requests that do not say are sampled as generation_config.json says; or at 1",
          .default_text = "auto",
          .choices = {"auto", "none"},
          .other_choices = {{"vllm", "none"}}};
}

server::SamplingDefaults sampling_defaults(const cli::Arguments& arguments,
                                           const checkpoint::Checkpoint& checkpoint,
                                           base::Log& log) {
  server::SamplingDefaults sampling;
  if (arguments.text("--generation-config") == "none") return sampling;
  const checkpoint::GenerationDefaults file =
      checkpoint::read_generation_defaults(checkpoint.text_folders());
  for (const std::string& warning : file.warnings) log.warning(warning);
  sampling.temperature = file.temperature.value_or(sampling.temperature);
  sampling.top_p = file.top_p.value_or(sampling.top_p);
  sampling.top_k = file.top_k.value_or(sampling.top_k);
  sampling.min_p = file.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = file.repetition_penalty.value_or(sampling.repetition_penalty);
  return sampling;
}

}  // namespace pelton::apps

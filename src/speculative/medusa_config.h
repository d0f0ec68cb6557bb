// What Medusa heads are (Cai et al. 2024, arXiv 2401.10774), read from their config.json as
// FasterDecoding and vLLM publish them, and checked against the target. A plain value; any thread.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"

namespace pelton::speculative {

struct MedusaConfig {
  int heads = 0;        // head i guesses the token i + 2 positions behind the state's
  int blocks = 1;       // residual blocks of each head
  int hidden_size = 0;  // the target's
  int vocab_size = 0;   // the target's
  int draft_vocab_size =
      0;  // rows of an output head; fewer than the target's: token_map names them

  enum class Output : uint8_t {
    kOwn,     // each head has an lm_head
    kOne,     // all heads have one, in their file (vLLM's original_lm_head)
    kTarget,  // the target's (shared_lm_head)
  };
  Output output = Output::kOwn;
  // medusa_fc_bias: nothing said, the tensors show it.
  enum class Bias : uint8_t { kUnsaid, kNone, kAdded };
  Bias bias = Bias::kUnsaid;
};

// Whether config.json says that it is of such heads.
bool is_medusa_config(const Json& config);

// `file` names the origin in errors. Errors: kBadCheckpoint, kUnsupported, naming the key; other
// sizes than the target's, kInvalidArgument.
Result<MedusaConfig> parse_medusa_config(const Json& config, const families::ModelConfig& target,
                                         const std::string& file);

// The number of heads alone, without a target. Errors: as above.
Result<int> medusa_head_count(const Json& config, const std::string& file);

}  // namespace pelton::speculative

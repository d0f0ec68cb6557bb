// Packing a model's weights into a folder of one's own, as `pelton pack` and `pelton pull --pack`
// do.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/command_line.h"
#include "node/packed_folder.h"

namespace pelton::apps {

// What packing may make of attention and head: auto, int8, shipped.
cli::Flag packed_weights_flag();

// Packs `model`, a folder or a hub id, with a progress bar, and says on stderr what was made; with
// `details` also what was tried. What int8 costs the model is kept for later advice
// (node/kept_measurement.h).
Result<void> pack_model_into(const std::string& model, const std::string& out,
                             const node::PackFolderOptions& options, int threads, bool details);

}  // namespace pelton::apps

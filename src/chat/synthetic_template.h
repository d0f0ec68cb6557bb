// A chat template for a checkpoint of random weights: a family's turns around the messages, in
// words of our own. Published models bring theirs. Constants; any thread.
#pragma once

#include <string_view>

namespace pelton::chat {

// Of models of this type (config.json's model_type); empty: they have a format without a template.
std::string_view synthetic_template(std::string_view model_type);

}  // namespace pelton::chat

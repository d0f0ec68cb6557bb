// Parts of a message that are no text (images, files, sound). These models read text only: a part
// is refused by name. But what a tool returned is replaced by a placeholder, which a
// warning says: a refusal would end an agent's session, whose every later request repeats the part.
// A tool returned what stands in its result, and what stands in the user's messages between a
// result and the assistant's next message, where clients put what a result may not hold.
// Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"

namespace pelton::api {

// What becomes of a part that is no text.
enum class UnreadParts { kRefused, kReplaced };

// The kind of medium that a part of this "type" is, in any protocol's words ("image" for
// "input_image" and "image_url"); empty where it is none.
std::string_view medium_of(std::string_view part_type);

// "[image omitted: this model reads text only]"
std::string placeholder_of(std::string_view medium);

// "Could not process image: …": Anthropic's words, by which clients know what to leave out before
// they try again.
void refuse_medium(const Fields& part, std::string_view medium);

// One warning for all parts that were replaced, by their paths; nothing if there are none.
std::optional<std::string> replaced_warning(std::span<const std::string> paths);

// Appended to `warnings`, for messages or items whose `replaced` are the paths.
template <typename Items>
void warn_of_replaced(const Items& items, std::vector<std::string>& warnings) {
  std::vector<std::string> paths;
  for (const auto& item : items) {
    paths.insert(paths.end(), item.replaced.begin(), item.replaced.end());
  }
  if (std::optional<std::string> warning = replaced_warning(paths)) {
    warnings.push_back(*std::move(warning));
  }
}

}  // namespace pelton::api

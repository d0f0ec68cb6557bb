// Which language a text is in: by its script, and where several languages share one, by letters
// that only one of them has and by its commonest words. Good for answers of a sentence or more;
// a name or a number is in no language. Pure functions; any thread.
#pragma once

#include <string_view>
#include <vector>

namespace pelton::eval {

// ISO 639-1, as "de"; empty where nothing says so. Example: "Wo ist der Hund?" -> "de".
std::string_view likeliest_language(std::string_view text);

// Those that it recognises, sorted.
std::vector<std::string_view> known_languages();

}  // namespace pelton::eval

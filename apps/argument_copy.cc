#include "apps/argument_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace pelton::apps {
namespace {

constexpr std::array<std::string_view, 2> kSecretFlags = {"--api-key", "--admin-api-key"};

void hide(char* text) {
  std::fill(text, text + std::strlen(text), 'x');
}

}  // namespace

ArgumentCopy::ArgumentCopy(int argc, char** argv) : texts_(argv, argv + argc) {
  for (std::string& text : texts_) pointers_.push_back(text.data());
  pointers_.push_back(nullptr);
  for (int i = 1; i < argc; ++i) {
    const std::string_view one = argv[i];
    for (const std::string_view flag : kSecretFlags) {
      if (one == flag && i + 1 < argc) {
        hide(argv[i + 1]);  // whatever it begins with
        for (int more = i + 2; more < argc && argv[more][0] != '-'; ++more) hide(argv[more]);
      }
      if (one.starts_with(flag) && one.substr(flag.size()).starts_with('=')) {
        hide(argv[i] + flag.size() + 1);
      }
    }
  }
}

}  // namespace pelton::apps

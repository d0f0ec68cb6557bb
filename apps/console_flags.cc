#include "apps/console_flags.h"

#include <utility>

#include "console/bundle.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> console_flags(std::string default_text) {
  return {{.name = "--console",
           .value = "PAGES",
           .help = "the web console at /console, for clients; chat: chat and models; off: none",
           .default_text = std::move(default_text),
           .choices = {"off", "chat"}}};
}

bool has_console(const cli::Arguments& arguments) {
  return arguments.text("--console") != "off" && !console::bundle().empty();
}

}  // namespace pelton::apps

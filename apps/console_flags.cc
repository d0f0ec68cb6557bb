#include "apps/console_flags.h"

#include "console/bundle.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> console_flags() {
  return {{.name = "--console",
           .value = "PAGES",
           .help = "the web console at /console; chat: chat and models; off: none",
           .default_text = "chat",
           .choices = {"off", "chat"}}};
}

bool has_console(const cli::Arguments& arguments) {
  return arguments.text("--console") != "off" && !console::bundle().empty();
}

}  // namespace pelton::apps

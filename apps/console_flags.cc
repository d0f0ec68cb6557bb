#include "apps/console_flags.h"

#include <utility>

#include "console/bundle.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> console_flags(std::string default_text) {
  return {{.name = "--console",
           .value = "PAGES",
           .help =
               "the web console at /console; chat: clients' pages, where the API is; operators: "
               "theirs, at the admin listener; all: both, each there; off: none",
           .default_text = std::move(default_text),
           .choices = {"off", "chat", "operators", "all"}}};
}

Flag operators_console_flag() {
  return {.name = "--console",
          .value = "PAGES",
          .help = "the web console at /console, where [autoscaler] listen is; off: none",
          .default_text = "operators",
          .choices = {"off", "operators"}};
}

bool has_console(const cli::Arguments& arguments) {
  const std::string& pages = arguments.text("--console");
  return (pages == "chat" || pages == "all") && !console::bundle().empty();
}

bool has_operators_console(const cli::Arguments& arguments) {
  const std::string& pages = arguments.text("--console");
  return (pages == "operators" || pages == "all") && !console::bundle().empty();
}

}  // namespace pelton::apps

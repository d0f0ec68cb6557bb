#include "apps/process_guard.h"

#include <sys/prctl.h>
#include <sys/resource.h>

namespace pelton::apps {

std::vector<cli::Flag> guard_flags() {
  return {{.name = "--allow-core-dumps",
           .help =
               "a crash may write memory, prompts and answers in it, to disk, and debuggers may "
               "attach",
           .kind = cli::Flag::Kind::kSwitch}};
}

void guard_process(const cli::Arguments& arguments, base::Log& log) {
  if (arguments.has("--allow-core-dumps")) return;
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  const bool limited = setrlimit(RLIMIT_CORE, &none) == 0;
  const bool closed = prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
  if (!limited || !closed) log.warning("this system does not let us forbid core dumps");
}

}  // namespace pelton::apps

// pelton completion, pelton manual: what shells and man say of this program, from its own flags.
#include "cli/completion.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "cli/manual.h"
#include "hub/cached_models.h"
#include "hub/hub_access.h"

namespace pelton::apps {
namespace {

namespace fs = std::filesystem;

// Names that a verb would take here: of the cache, and of folders below models/.
std::string model_names() {
  std::set<std::string> names;
  const auto cached = hub::cached_models(hub::cache_folder(hub::AccessEnvironment::of_process()));
  if (cached.ok()) {
    for (const hub::CachedModel& model : *cached) names.insert(model.model);
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("models", error)) {
    if (fs::exists(entry.path() / "config.json", error)) names.insert(entry.path().string());
  }
  std::string out;
  for (const std::string& name : names) out += name + "\n";
  return out;
}

Result<void> write_manuals(const std::string& folder, const cli::CommandLine::Program& program,
                           const std::vector<cli::Verb>& verbs) {
  std::error_code error;
  fs::create_directories(folder, error);
  TRY(base::write_file(fmt::format("{}/{}.1", folder, program.name), cli::manual(program, verbs)));
  for (const cli::Verb& verb : verbs) {
    TRY(base::write_file(fmt::format("{}/{}.1", folder, cli::manual_name(program, verb)),
                         cli::manual(program, verb)));
  }
  return {};
}

}  // namespace

cli::Verb completion_verb(const cli::CommandLine::Program& program,
                          const std::vector<cli::Verb>& verbs) {
  return {.name = "completion",
          .summary = "Prints a shell's completion of this program.",
          .about =
              "bash:  source <(pelton completion bash)\n"
              "zsh:   pelton completion zsh > ~/.zfunc/_pelton, with ~/.zfunc in fpath\n"
              "fish:  pelton completion fish > ~/.config/fish/completions/pelton.fish\n"
              "The package installs them.",
          .positionals = {{.name = "SHELL",
                           .help = "bash, zsh or fish; models: the names of models that are here",
                           .choices = {"bash", "zsh", "fish", "models"}}},
          .flags = {},
          .examples = {"source <(pelton completion bash)"},
          .run = [program, &verbs](const cli::Arguments& arguments) -> Result<void> {
            const std::string& shell = arguments.text("SHELL");
            if (shell == "models") return write_output(model_names());
            if (shell == "bash") return write_output(cli::bash_completion(program, verbs));
            if (shell == "fish") return write_output(cli::fish_completion(program, verbs));
            return write_output(cli::zsh_completion(program, verbs));
          }};
}

cli::Verb manual_verb(const cli::CommandLine::Program& program,
                      const std::vector<cli::Verb>& verbs) {
  return {
      .name = "manual",
      .summary = "Prints a manual page, or writes all of them.",
      .about = "The package installs them: man pelton-serve.",
      .positionals = {{.name = "VERB",
                       .help = "whose page; without it, the program's",
                       .required = false,
                       .many = true}},
      .flags = {{.name = "--out",
                 .value = "FOLDER",
                 .help = "write every page there instead, as pelton-serve.1",
                 .not_with = {{"VERB"}}}},
      .examples = {"pelton manual bench serve | man -l -", "pelton manual --out ~/man/man1"},
      .run = [program, &verbs](const cli::Arguments& arguments) -> Result<void> {
        if (arguments.has("--out")) {
          return write_manuals(arguments.text("--out"), program, verbs);
        }
        const std::string name = fmt::format("{}", fmt::join(arguments.list("VERB"), " "));
        if (name.empty()) return write_output(cli::manual(program, verbs));
        const auto found = std::find_if(verbs.begin(), verbs.end(),
                                        [&](const cli::Verb& verb) { return verb.name == name; });
        if (found == verbs.end()) {
          return Error{ErrorCode::kInvalidArgument, fmt::format("unknown verb '{}'", name), "VERB"};
        }
        return write_output(cli::manual(program, *found));
      }};
}

}  // namespace pelton::apps

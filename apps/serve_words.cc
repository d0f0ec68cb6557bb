#include "apps/serve_words.h"

#include <algorithm>

#include "apps/verbs.h"

namespace pelton::apps {

using cli::Flag;

std::vector<std::string> serve_words(const cli::Arguments& arguments, int sequences_max) {
  std::vector<std::string> words = {"--max-num-seqs", std::to_string(sequences_max)};
  const std::vector<Flag> known = serve_verb().flags;
  for (const Flag& flag : simulate_verb().flags) {
    const bool is_other =
        flag.name == "--max-num-seqs" || flag.name == "--seed" || flag.name == "--replicas";
    const bool is_known = std::ranges::find(known, flag.name, &Flag::name) != known.end();
    if (!arguments.knows(flag.name)) continue;
    const cli::Arguments::Source source = arguments.source(flag.name);
    const bool is_asked =
        source != cli::Arguments::Source::kDefault && source != cli::Arguments::Source::kNobody;
    if (is_other || !is_known || !is_asked) continue;
    if (flag.kind != Flag::Kind::kSwitch) {
      words.push_back(flag.name);
      words.push_back(arguments.text(flag.name));
    } else if (arguments.has(flag.name)) {
      words.push_back(flag.name);
    } else if (!flag.negations.empty()) {
      words.push_back(flag.negations.front());
    }
  }
  return words;
}

}  // namespace pelton::apps

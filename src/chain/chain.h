// A chain: steps that are carried out in the order of their needs, each on values of the input and
// of steps before it. Read from a file and checked as a whole: names, types, cycles, so that what
// is here can be run. A value, immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chain/builtin.h"
#include "chain/template.h"
#include "chain/value_type.h"

namespace pelton::chain {

// The API of a model that a step of kind model: uses.
enum class Endpoint { kChat, kCompletions, kEmbeddings, kRerank };

struct Step {
  enum class Kind { kModel, kHttp, kBuiltin };
  // What a failed attempt may be made again for.
  struct Retry {
    int most = 0;              // attempts after the first
    double wait_s = 0.5;       // before the second one; doubled each time, at most 30
    bool server_error = true;  // 5xx
    bool busy = true;          // 429
    bool timeout = true;
    bool unreachable = true;
  };

  std::string name;
  int line = 0;
  Kind kind = Kind::kBuiltin;
  std::string target;  // the model's name ("*": the one that is served), the URL, or empty
  Endpoint endpoint = Endpoint::kChat;  // kModel
  bool posts = true;                    // kHttp: POST with a JSON body, or GET with a query
  bool takes_text = false;              // kHttp: the answer is a text, not JSON
  const Builtin* builtin = nullptr;     // kBuiltin
  Template with;                        // a table
  std::optional<Template> for_each;
  std::optional<Template> when;
  int parallel = 4;  // pieces at once
  int64_t pieces_max = 10'000;
  Retry retry;
  double timeout_s = 120;  // of one attempt

  std::vector<size_t> needs;    // the steps whose values it reads
  std::vector<size_t> used_by;  // the reverse
  bool is_output = false;       // the chain's output reads it
  Type type;                    // of its value
};

struct Chain {
  std::string name;
  std::string file;
  std::string about;  // one line; may be empty
  std::vector<Type::Field> input;
  Template output;  // a table
  std::vector<Type::Field> output_types;
  std::optional<size_t> stream_from;  // the step whose text is streamed
  std::optional<double> timeout_s;    // of a whole run
  std::vector<Step> steps;            // each behind those that it needs

  const Step* find(std::string_view step) const;
};

// Where a chain stops being one that anybody means.
inline constexpr size_t kStepsMax = 256;
inline constexpr int64_t kPiecesMax = 100'000;
inline constexpr int kParallelMax = 256;

// Errors: kBadConfig, "FILE:LINE: ...".
Result<Chain> parse_chain(std::string_view text, const std::string& file);
Result<Chain> read_chain(const std::string& file);
// Every *.toml of a folder, by name. Errors: as above; of a folder without any, and two of one
// name.
Result<std::vector<Chain>> read_chains(const std::string& folder);

// What the input lacks or has too much. Errors: kInvalidArgument with the field, "input.question".
Result<void> check_input(const Chain& chain, const Json& input);

std::string_view endpoint_name(Endpoint endpoint);
// "model:x", "http:https://...", "builtin:join": as the file has it.
std::string use_text(const Step& step);

}  // namespace pelton::chain

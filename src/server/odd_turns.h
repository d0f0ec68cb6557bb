// A scripted model that writes turns which are not as Harmony has them: what the tests of such
// turns ask in common.
#pragma once

#include <string>
#include <string_view>

namespace pelton::server {

// `more`: rules of a test's own, each with a comma in front.
inline std::string odd_turns(std::string_view more) {
  std::string script = R"({"context": 120000, "rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"},
  {"when": "no role", "then": "<|start|><|message|>lost words<|return|>"},
  {"when": "odd channel", "then": "<|channel|>musing<|message|>odd words<|return|>"},
  {"when": "two channels", "then": "<|channel|>final<|channel|>final<|message|>twice told<|return|>"},
  {"when": "ponder", "then": ["<|channel|>analysis<|message|>", {"text": "thinking ", "times": 500}]},
  {"when": "strange constraint", "then": "<|channel|>commentary to=functions.nope <|constrain|>yaml<|message|>a: 1<|call|>"},
  {"when": "plain answer", "then": "<|channel|>analysis<|message|>private thought<|end|><|start|>assistant<|channel|>final<|message|>public answer<|return|>"}
)";
  return script.append(more) + "]}";
}

}  // namespace pelton::server

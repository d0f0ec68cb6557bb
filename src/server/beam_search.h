// Beam search: of all continuations of a prompt, the likeliest that can be found by keeping so many
// beginnings at a time (Lowerre 1976). Beams of different lengths are compared as vLLM does: by
// logprob / length^penalty, where the length counts the prompt and not the stop token. Draws
// nothing: the same model gives the same beams. Knows no engine: whoever has one extends the live
// beams by a token each and says what could follow. A value, one owner.
//
// Example, width 2, from the empty beginning with p(a)=.6, p(b)=.4: "a" and "b" live. Then
// p(x|a)=.5, p(y|a)=.5, p(x|b)=.9, p(y|b)=.1: "bx" (.36) and "ax" (.30, found before "ay") live,
// and greedy decoding's "a" is no longer the best beginning.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "engine/step_plan.h"

namespace pelton::server {

struct Beam {
  std::vector<engine::SampledToken> tokens;  // a stop token that ended it is the last
  double logprob = 0.0;                      // of all of them together
  bool stopped = false;                      // by a stop token
};

class BeamSearch {
 public:
  struct Options {
    int width = 1;       // beams that live, and that are kept of those that ended
    int tokens_max = 1;  // of a beam
    int prompt_tokens = 0;
    double length_penalty = 1.0;
    bool early_stopping = false;  // over as soon as `width` have stopped, though better may come
    std::vector<TokenId> stops;   // end a beam
  };

  explicit BeamSearch(Options options);

  // Those to be extended; at first the empty one, none when the search is over.
  std::span<const Beam> live() const { return live_; }
  // So many alternatives are asked for of each: as many as live, though every stop token were among
  // the likelier ones.
  int alternatives() const;
  // What may follow each live beam, likeliest first, with natural logarithms of probabilities.
  using Next = std::vector<std::pair<TokenId, float>>;
  void extend(std::span<const Next> next);

  // The best `count` that ended (at most `width`), best first; once no beam lives.
  std::vector<Beam> best(size_t count) const;

  double score(const Beam& beam) const;

 private:
  double score_of(double logprob, size_t output_tokens) const;
  // No live beam can become better than those that are kept already.
  bool is_settled() const;
  void finish(Beam beam);

  const Options options_;
  std::vector<Beam> live_ = {{}};  // best first
  std::vector<Beam> ended_;        // best first, at most `width`
};

}  // namespace pelton::server

// The words of a tokenizer that stay single tokens wherever they stand between others, so that a
// prompt's length is known to the token.
#pragma once

#include "base/result.h"
#include "tokenizer/tokenizer.h"
#include "workload/vocabulary.h"

namespace pelton::bench {

// `tokenizer` outlives what is returned. Errors: kUnsupported if it has hardly any such words.
Result<workload::Vocabulary> token_words(const tokenizer::Tokenizer& tokenizer);

}  // namespace pelton::bench

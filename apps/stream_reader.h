// Reads a token stream while listening for Ctrl-C: waits for tokens, but never longer than a moment
// without looking at the interrupt. Main thread.
#pragma once

#include <memory>
#include <optional>
#include <semaphore>

#include "cli/interrupt.h"
#include "engine/token_stream.h"

namespace pelton::apps {

class StreamReader {
 public:
  // `interrupt` outlives it.
  StreamReader(engine::TokenStream stream, const cli::Interrupt& interrupt);

  // The next tokens, or the end; empty if the user interrupted: the stream is then cancelled.
  std::optional<engine::TokenStream::Batch> next();

 private:
  using Semaphore = std::counting_semaphore<>;

  engine::TokenStream stream_;
  const cli::Interrupt& interrupt_;
  std::shared_ptr<Semaphore> ready_;  // also held by the engine's callback
};

}  // namespace pelton::apps

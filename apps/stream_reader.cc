#include "apps/stream_reader.h"

#include <chrono>

namespace pelton::apps {

StreamReader::StreamReader(engine::TokenStream stream, const cli::Interrupt& interrupt)
    : stream_(std::move(stream)), interrupt_(interrupt), ready_(std::make_shared<Semaphore>(0)) {
  stream_.on_ready([ready = ready_] { ready->release(); });
}

std::optional<engine::TokenStream::Batch> StreamReader::next() {
  constexpr std::chrono::milliseconds kLook{50};  // as late as a Ctrl-C may be noticed
  while (true) {
    if (interrupt_.pending()) {
      stream_.cancel();
      return std::nullopt;
    }
    if (!ready_->try_acquire_for(kLook)) continue;
    engine::TokenStream::Batch batch = stream_.take();
    if (!batch.tokens.empty() || batch.end) return batch;
  }
}

}  // namespace pelton::apps

// One chunk on its way from one source: its bytes so far, and whether what comes is what was asked
// for. Continues after a cut. Owned by a fetch; its thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hub/transfers.h"
#include "weights/chunk_folder.h"
#include "weights/source.h"

namespace pelton::weights {

class Download final : public hub::TransferSink {
 public:
  // `received`: counts its bytes besides; it outlives it.
  Download(const ChunkFolder& folder, int chunk, int source, bool by_digest, int64_t now_ns,
           int64_t& received)
      : folder_(folder),
        chunk_(chunk),
        source_(source),
        by_digest_(by_digest),
        begun_ns_(now_ns),
        received_(received) {}

  int chunk() const { return chunk_; }
  int source() const { return source_; }
  bool by_digest() const { return by_digest_; }  // else by the file's path
  std::string path() const;
  // Of the bytes that are still missing, within what path() names; empty: all of it.
  std::optional<hub::ByteRange> range() const;

  // Before each try.
  void begin_try();
  bool on_head(const hub::ResponseHead& head) override;
  bool on_body(std::string_view bytes) override;

  const hub::ResponseHead& head() const { return head_; }
  bool complete() const { return static_cast<int64_t>(bytes_.size()) == wanted(); }
  // Whether this try has brought so much that one more is worth it, however often.
  static constexpr size_t kAdvance = size_t{16} << 10;
  bool has_advanced() const { return complete() || bytes_.size() >= begun_with_ + kAdvance; }
  // How long the rest would take at the pace so far.
  double seconds_left(int64_t now_ns) const {
    const double took_s = static_cast<double>(now_ns - begun_ns_) * 1e-9;
    const auto done = static_cast<double>(bytes_.size());
    return took_s * (static_cast<double>(wanted()) - done) / std::max(done, 1.0);
  }
  int64_t begun_ns() const { return begun_ns_; }
  // What was wrong with an answer that looked like one: a range that is another, too many bytes.
  const std::string& fault() const { return fault_; }
  std::string take_bytes() { return std::move(bytes_); }

  int transfer = 0;                            // running; 0: it waits
  int redirects = 0;                           // of this chunk
  std::optional<hub::TransferRequest> led_to;  // by a redirect

 private:
  int64_t wanted() const { return folder_.chunks()[static_cast<size_t>(chunk_)].bytes; }

  const ChunkFolder& folder_;
  const int chunk_;
  const int source_;
  const bool by_digest_;
  const int64_t begun_ns_;
  int64_t& received_;
  std::string bytes_;
  size_t begun_with_ = 0;
  hub::ResponseHead head_;
  std::string fault_;
};

}  // namespace pelton::weights

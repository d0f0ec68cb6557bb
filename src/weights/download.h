// One chunk on its way from one source: its bytes so far, and whether what comes is what was asked
// for. Continues after a cut. Owned by a fetch; its thread.
#pragma once

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
  Download(const ChunkFolder& folder, int chunk, int source, bool by_digest)
      : folder_(folder), chunk_(chunk), source_(source), by_digest_(by_digest) {}

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
  bool has_grown() const { return bytes_.size() > begun_with_; }
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
  std::string bytes_;
  size_t begun_with_ = 0;
  hub::ResponseHead head_;
  std::string fault_;
};

}  // namespace pelton::weights

// Fetches one file's missing bytes, in pieces over several connections, and continues each piece
// where it broke off. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "hub/hub_api.h"
#include "hub/retry.h"
#include "hub/transfers.h"
#include "hub/unfinished_blob.h"

namespace pelton::hub {

class BlobDownload {
 public:
  struct Options {
    int connections = 8;
    int64_t piece_bytes = 0;  // most that one request asks for
    RetryOptions retry;
  };
  // Where the bytes are: asked at the start, and again when a signed address has expired.
  using Locate = base::FunctionRef<Result<FileLocation>()>;
  // What a refused request means to the user.
  using Refusal = base::FunctionRef<Error(const ResponseHead&)>;
  // Called after every step with how many bytes are there; false ends with kCancelled.
  using Progress = base::FunctionRef<bool(int64_t bytes_done)>;

  BlobDownload(const Options& options, const std::string& name, const std::string& token,
               Transfers& transfers, const base::Clock& clock);
  ~BlobDownload();

  // Until `blob` is complete. What has arrived before an error stays in `blob`. Errors:
  // kUnavailable, kNotFound, kBadCheckpoint (wrong sizes), kIo, kCancelled.
  Result<void> run(UnfinishedBlob& blob, int64_t size, Locate locate, Refusal refusal,
                   Progress progress);

 private:
  struct Piece;
  Result<void> step(UnfinishedBlob& blob, Locate locate, Refusal refusal);
  void start_pieces();
  Result<void> piece_ended(Piece& piece, const TransferEnd& end, UnfinishedBlob& blob,
                           Locate locate, Refusal refusal);
  Result<void> piece_refused(Piece& piece, UnfinishedBlob& blob, Locate locate, Refusal refusal);
  Result<void> try_again(Piece& piece, const std::string& why);
  Result<void> go_without_ranges(UnfinishedBlob& blob);
  Result<void> ask_anew_where(Locate locate);

  const Options options_;
  const std::string name_;
  const std::string token_;
  Transfers& transfers_;
  const base::Clock& clock_;

  int64_t size_ = 0;
  FileLocation location_;
  bool ranges_ = true;  // this server knows them
  int relocations_ = 0;
  int64_t planned_to_ = 0;  // no gap below this is without a piece
  std::list<Piece> pieces_;
};

}  // namespace pelton::hub

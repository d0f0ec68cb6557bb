// The load that a gateway's clients made, as numbers: a line of JSON for each relayed request that
// is over, which `pelton simulate --requests` and `bench serve` play again. When it came, which
// pool took it, how long prompt and answer were, what its prompt shares with others', what became
// of it; no text, no token, no client. Names of prompts' blocks are keyed digests under a salt that
// is drawn at each start and never written: who has the file cannot check whether a prompt that he
// guesses is in it.
//
//   {"timestamp":1790000000123,"pool":"box","class":"1k:64","input_length":300,"output_length":41,
//    "cached_tokens":256,"block_tokens":64,"hash_ids":[2206,97,5,81],"status":200,"outcome":"ok",
//    "first_token_ms":31.5,"duration_ms":410.2}
//
// Written by a thread of its own; lines that do not fit the queue, or the disk, are counted and
// gone, whole. A file that has become too long is renamed to FILE.1, in the place of the one before
// it. Owned by the gateway; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/result.h"
#include "kv/block_hash.h"

namespace pelton::gateway {

struct RequestFacts {
  int64_t arrived_unix_ms = 0;
  std::string pool;
  int64_t input_tokens = 0;  // an estimate where no worker has said
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;
  std::vector<kv::BlockHash> names;  // each of block_tokens, and of all before it
  int block_tokens = 0;              // 0: it has no names
  int status = 0;                    // 0: its client left before there was one
  std::string_view outcome;          // one of GatewayFigures::kOutcomes
  double first_token_s = 0;          // 0: there was none
  double duration_s = 0;
};

// Of a prompt's names those that end a group of blocks of about 64 tokens, so that a line stays
// short.
struct GroupedNames {
  std::vector<kv::BlockHash> names;
  int block_tokens = 0;
};
GroupedNames grouped_names(std::span<const kv::BlockHash> names, int block_tokens);

// Its lengths, coarsely: the bounds in tokens, in powers of four, that its prompt and its answer
// are within: "4k:256" is a prompt of 1 025 to 4 096 tokens with an answer of 65 to 256. Beyond
// 128k and 4k: "more".
std::string length_class(int64_t input_tokens, int64_t output_tokens);

// With its line feed.
std::string request_line(const RequestFacts& facts, std::string_view salt);

class RequestLog {
 public:
  static constexpr int64_t kBytesMax = int64_t{256} << 20;
  struct Options {
    int64_t bytes_max = kBytesMax;  // of a file
    size_t waiting_max = 8192;      // requests that wait to be written
  };

  // What is there is gone on with. Errors: kIo. `log` outlives it.
  static Result<std::unique_ptr<RequestLog>> open(std::string path, const Options& options,
                                                  base::Log& log);
  ~RequestLog();  // writes what waits
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  void note(RequestFacts facts);
  int64_t lost() const { return lost_; }

 private:
  RequestLog(std::string path, const Options& options, base::OutputFile file, base::Log& log);
  void write_lines();
  void write(std::string_view lines);
  void renew();

  const std::string path_;
  const int64_t bytes_max_;
  const std::string salt_;
  base::Log& log_;
  base::OutputFile file_;  // the thread's, as the next two
  int64_t bytes_ = 0;
  bool failing_ = false;
  std::atomic<int64_t> lost_{0};
  base::BoundedQueue<RequestFacts> waiting_;
  std::thread thread_;  // last: it works with all above
};

}  // namespace pelton::gateway

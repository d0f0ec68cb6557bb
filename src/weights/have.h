// What a node says of the chunks that it has, so that nodes which fetch the same model at once
// share the work. A value; what is read may come from anybody.
//
//   {"id":"8d7c…","manifest":"<64 hex digits>","chunks":9,"have":"ff01","coming":"0000",
//    "received":1234567,"peers":["10.0.0.7:9000"]}
// `have`: a bit for each chunk, chunk 0 is the lowest of the first byte; "all": a node that has
// everything. `received` may be absent, as older nodes do not say it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/chunk_folder.h"

namespace pelton::weights {

struct Have {
  static constexpr size_t kPeersMax = 64;
  static constexpr size_t kBytesMax = size_t{1} << 20;

  std::string id;        // of the process
  std::string manifest;  // its digest
  std::vector<bool> there;
  std::vector<bool> coming;        // that it is fetching from the origin
  int64_t received = 0;            // bytes that have come to it, of chunks on their way too
  std::vector<std::string> peers;  // others that fetch the same: addresses with ports

  std::string to_json() const;
};

Have have_of(const ChunkFolder& folder, std::string id);

// Errors: kBadCheckpoint; `field` names what is wrong. `chunks`: how many there must be.
Result<Have> parse_have(std::string_view text, size_t chunks);

}  // namespace pelton::weights

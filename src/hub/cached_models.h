// The models in the cache: listed, and deleted without a rest. Only looks, but for purge(). Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::hub {

struct CachedModel {
  std::string model;  // "openai/gpt-oss-20b"
  std::string folder;
  std::vector<std::string> revisions;  // names that lead to a snapshot
  int64_t bytes = 0;                   // of whole blobs
  int64_t unfinished_bytes = 0;        // that an unfinished download takes on the disk
  int files = 0;                       // of the snapshot that "main", or else any name, leads to
  int64_t modified_unix = 0;           // seconds
};

// By name. A cache that does not exist has no models.
Result<std::vector<CachedModel>> cached_models(const std::string& cache);

// Deletes the model's folder and its locks. Returns the bytes freed. Errors: kNotFound;
// kUnavailable while another process downloads it; kIo.
Result<int64_t> purge(const std::string& cache, const std::string& model);

}  // namespace pelton::hub

// The golden cases, as their folders say (testdata/golden/README.md): tests go over all of them,
// and list none. For tests and tools; pure but for the files that write_weights writes.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::checkpoint {

struct GoldenFolder {
  std::string name;  // the folder's: "qwen3-moe"
  std::string path;
  Json config;  // config.json
  Json facts;   // case.json

  // Where the weights come from: "gpt-oss" (golden_checkpoint.h), "families" (family_golden.h), or
  // "", if the folder stores them.
  std::string formula() const { return facts.string("formula").value_or(""); }
  // The name as one of a test: "qwen3_moe".
  std::string test_name() const;
};
// What GoogleTest shows of it: the name.
void PrintTo(const GoldenFolder& golden, std::ostream* out);

// Every folder of `root` that has a case.json, by name; none if there is no such folder.
std::vector<GoldenFolder> golden_folders(const std::string& root);
// Those of decoders and, in its folder `embeddings`, of encoders and embedders.
std::vector<GoldenFolder> all_golden_folders(const std::string& root);
// Those of families with a formula of their own: all but gpt-oss'.
std::vector<GoldenFolder> family_folders(const std::string& root);

// Makes `folder` and in it the case's config.json and model.safetensors.
Result<void> write_weights(const GoldenFolder& golden, const std::string& folder);

}  // namespace pelton::checkpoint

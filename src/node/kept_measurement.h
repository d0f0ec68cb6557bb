// What packing was measured to cost a model, kept when `pelton pack` has measured it, for the
// advice that a start without packing gives (LoadedModel): one small file for each model and format
// in this user's cache. Any thread; the newest measurement stands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "models/pack_model.h"

namespace pelton::node {

// Where measurements are kept: cache_folder("measured"); empty: nowhere.
std::string measurements_folder();

// Of `source` with attention in 8 bits and an approximate head, which is what --weights int8 makes.
// Nothing is kept where `made` is another format or was not measured. Errors: kIo.
Result<void> keep_measurement(const std::string& folder, const checkpoint::Checkpoint& source,
                              const models::PackedModel& made);

// "8 bits change the likeliest token at 1.6 % of positions of a text and diverge by 2.1e-04 nats";
// nothing where none of these files is kept, or what is kept cannot be read.
std::optional<std::string> kept_measurement(const std::string& folder,
                                            const checkpoint::Checkpoint& source);

// What another format was found to cost a model, when `pelton perplexity` compared the two over a
// text. Kept beside; no format is recommended without a record.
struct FormatRecord {
  // Of `pelton eval`: the same tasks asked of both.
  struct Tasks {
    int64_t count = 0;
    double score = 0;  // share of right answers, of the format as shipped
    double other_score = 0;
    double p = 1;  // McNemar's
  };

  std::string format;  // "weights-int8", "kv-int8"
  int64_t tokens = 0;  // of that text
  double perplexity = 0;
  double other_perplexity = 0;
  double divergence = 0;            // KL, nats, a mean
  double agreement = 0;             // share of positions with the same likeliest token
  std::optional<Tasks> tasks = {};  // none: nobody has asked any, which the text says

  // "perplexity 12.3456 instead of 12.3400, ..., over 4 096 tokens of a text; right answers 91.9 %
  // instead of 92.0 % of 1500 tasks (p 0.9)".
  std::string text() const;
};
// The newest of each format stands. Errors: kIo, kInvalidArgument.
Result<void> keep_record(const std::string& folder, const checkpoint::Checkpoint& source,
                         const FormatRecord& record);
// Beside the record of that format, whichever comes first; without one it is none. Errors: kIo,
// kInvalidArgument.
Result<void> keep_task_scores(const std::string& folder, const checkpoint::Checkpoint& source,
                              const std::string& format, const FormatRecord::Tasks& tasks);
// Of these very files; by format.
std::vector<FormatRecord> kept_records(const std::string& folder,
                                       const checkpoint::Checkpoint& source);

}  // namespace pelton::node

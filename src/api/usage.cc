#include "api/usage.h"

namespace pelton::api {

void write_usage(base::JsonWriter& writer, const Usage& usage) {
  writer.begin_object();
  writer.key("prompt_tokens").integer(usage.prompt_tokens);
  writer.key("completion_tokens").integer(usage.completion_tokens);
  writer.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  writer.key("prompt_tokens_details").begin_object();
  writer.key("cached_tokens").integer(usage.cached_tokens);
  // Only where there is something to say: most servers have one tier.
  const int64_t further =
      usage.cached_on_host_tokens + usage.cached_on_disk_tokens + usage.cached_from_peer_tokens;
  if (further > 0) {
    writer.key("cached_tokens_details").begin_object();
    writer.key("device").integer(usage.cached_tokens - further);
    writer.key("host").integer(usage.cached_on_host_tokens);
    writer.key("disk").integer(usage.cached_on_disk_tokens);
    if (usage.cached_from_peer_tokens > 0) {
      writer.key("peer").integer(usage.cached_from_peer_tokens);
    }
    writer.end_object();
  }
  writer.end_object();
  writer.key("completion_tokens_details").begin_object();
  writer.key("reasoning_tokens").integer(usage.reasoning_tokens);
  if (usage.prediction) {
    writer.key("accepted_prediction_tokens").integer(usage.prediction->accepted);
    writer.key("rejected_prediction_tokens").integer(usage.prediction->rejected);
  }
  writer.end_object().end_object();
}

}  // namespace pelton::api

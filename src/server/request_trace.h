// The spans of one request, named like the rooms it went through. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "server/request_record.h"
#include "telemetry/span.h"

namespace pelton::server {

// `seed` makes the ids of the inner spans. The first span is the whole request; those of rooms that
// it did not reach are missing.
std::vector<telemetry::Span> request_spans(const RequestRecord& record, uint64_t seed);

}  // namespace pelton::server

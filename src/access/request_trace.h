// The spans of one request, by OpenTelemetry's conventions: the request ("POST
// /v1/chat/completions"), in it the inference ("chat MODEL", with the gen_ai attributes), and in
// this what each room did. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "access/request_record.h"
#include "telemetry/span.h"

namespace pelton::access {

// `seed` makes the ids of the inner spans. The first span is the whole request; those that it did
// not reach are missing.
std::vector<telemetry::Span> request_spans(const RequestRecord& record, uint64_t seed);

}  // namespace pelton::access

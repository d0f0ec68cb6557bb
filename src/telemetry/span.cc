#include "telemetry/span.h"

#include "base/json_writer.h"
#include "telemetry/trace_context.h"

namespace pelton::telemetry {
namespace {

using base::JsonWriter;

// 64-bit integers are strings in OTLP's JSON.
void write_attribute(JsonWriter& writer, const Span::Attribute& attribute) {
  writer.begin_object().key("key").string(attribute.key).key("value").begin_object();
  if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    writer.key("stringValue").string(*text);
  } else if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
    writer.key("intValue").string(std::to_string(*integer));
  } else if (const auto* number = std::get_if<double>(&attribute.value)) {
    writer.key("doubleValue").number(*number);
  } else {
    writer.key("arrayValue").begin_object().key("values").begin_array();
    for (const std::string& item : std::get<std::vector<std::string>>(attribute.value)) {
      writer.begin_object().key("stringValue").string(item).end_object();
    }
    writer.end_array().end_object();
  }
  writer.end_object().end_object();
}

void write_span(JsonWriter& writer, const Span& span) {
  writer.begin_object().key("traceId").string(hex(span.trace_id));
  writer.key("spanId").string(hex(span.span_id));
  if (span.parent_id != 0) writer.key("parentSpanId").string(hex(span.parent_id));
  writer.key("name").string(span.name).key("kind").integer(static_cast<int64_t>(span.kind));
  writer.key("startTimeUnixNano").string(std::to_string(span.start_unix_ns));
  writer.key("endTimeUnixNano").string(std::to_string(span.end_unix_ns));
  writer.key("attributes").begin_array();
  for (const Span::Attribute& attribute : span.attributes) write_attribute(writer, attribute);
  writer.end_array().key("status").begin_object();
  if (span.failed) writer.key("code").integer(2);
  writer.end_object().end_object();
}

}  // namespace

std::string otlp_json(const TracedService& service, const std::vector<Span>& spans) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("resourceSpans").begin_array().begin_object();
  writer.key("resource").begin_object().key("attributes").begin_array();
  write_attribute(writer, {.key = "service.name", .value = service.name});
  write_attribute(writer, {.key = "service.version", .value = service.version});
  writer.end_array().end_object();
  writer.key("scopeSpans").begin_array().begin_object();
  writer.key("scope").begin_object().key("name").string("pelton").end_object();
  writer.key("spans").begin_array();
  for (const Span& span : spans) write_span(writer, span);
  writer.end_array().end_object().end_array();
  writer.end_object().end_array().end_object();
  return body;
}

}  // namespace pelton::telemetry

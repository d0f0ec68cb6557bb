#include "api/response_events.h"

namespace pelton::api {
namespace {

using base::JsonWriter;
using Kind = OutputItem::Kind;

std::string_view delta_type(Kind kind) {
  switch (kind) {
    case Kind::kReasoning:
      return "response.reasoning_text.delta";
    case Kind::kMessage:
      return "response.output_text.delta";
    case Kind::kCall:
      break;
  }
  return "response.function_call_arguments.delta";
}

std::string_view done_type(Kind kind) {
  switch (kind) {
    case Kind::kReasoning:
      return "response.reasoning_text.done";
    case Kind::kMessage:
      return "response.output_text.done";
    case Kind::kCall:
      break;
  }
  return "response.function_call_arguments.done";
}

}  // namespace

// A message that says "Hi", as item_begins, text_grows and item_ends write it, numbered 0 to 5:
//   response.output_item.added     response.output_text.done
//   response.content_part.added    response.content_part.done
//   response.output_text.delta     response.output_item.done
// A call has no parts: response.output_item.added, response.function_call_arguments.delta and
// .done, response.output_item.done.
void ResponseEvents::event(std::string_view type, Members members, std::string& out) {
  if (framing_ == Framing::kServerSent) {
    out.append("event: ").append(type).append("\ndata: ");
  }
  JsonWriter writer(out);
  writer.begin_object().key("type").string(type);
  writer.key("sequence_number").integer(sequence_number_++);
  members(writer);
  writer.end_object();
  out += framing_ == Framing::kServerSent ? "\n\n" : "\n";
}

void ResponseEvents::item_event(std::string_view type, const Place& place, Members members,
                                std::string& out) {
  event(
      type,
      [&](JsonWriter& writer) {
        writer.key("item_id").string(place.item.id);
        writer.key("output_index").integer(static_cast<int64_t>(place.index));
        if (place.item.kind != Kind::kCall) writer.key("content_index").integer(0);
        members(writer);
      },
      out);
}

// Nothing of an item that has no summary.
void ResponseEvents::summary_event(std::string_view type, const Place& place, Members members,
                                   std::string& out) {
  if (place.item.kind != Kind::kReasoning || !place.item.has_summary) return;
  event(
      type,
      [&](JsonWriter& writer) {
        writer.key("item_id").string(place.item.id);
        writer.key("output_index").integer(static_cast<int64_t>(place.index));
        writer.key("summary_index").integer(0);
        members(writer);
      },
      out);
}

void ResponseEvents::lifecycle(std::string_view type, std::string_view response_body,
                               std::string& out) {
  event(
      type, [&](JsonWriter& writer) { writer.key("response").raw(response_body); }, out);
}

void ResponseEvents::item_begins(const Place& place, std::string& out) {
  event(
      "response.output_item.added",
      [&](JsonWriter& writer) {
        writer.key("output_index").integer(static_cast<int64_t>(place.index)).key("item");
        write_begun_item(writer, place.item);
      },
      out);
  if (place.item.kind == Kind::kCall) return;
  item_event(
      "response.content_part.added", place,
      [&](JsonWriter& writer) {
        writer.key("part");
        write_begun_part(writer, place.item);
      },
      out);
  summary_event(
      "response.reasoning_summary_part.added", place,
      [&](JsonWriter& writer) { write_summary_part(writer.key("part"), ""); }, out);
}

void ResponseEvents::text_grows(const Place& place, std::string_view delta,
                                std::span<const TokenLogprobs> logprobs, std::string& out) {
  item_event(
      delta_type(place.item.kind), place,
      [&](JsonWriter& writer) {
        writer.key("delta").string(delta);
        if (place.item.kind != Kind::kMessage) return;
        writer.key("logprobs");
        write_token_logprobs(writer, logprobs);
      },
      out);
  summary_event(
      "response.reasoning_summary_text.delta", place,
      [&](JsonWriter& writer) { writer.key("delta").string(delta); }, out);
}

void ResponseEvents::item_ends(const Place& place, std::string& out) {
  const OutputItem& item = place.item;
  item_event(
      done_type(item.kind), place,
      [&](JsonWriter& writer) {
        if (item.kind == Kind::kCall) {
          writer.key("name").string(item.name).key("arguments").string(item.text);
          return;
        }
        writer.key("text").string(item.text);
        if (item.kind != Kind::kMessage) return;
        writer.key("logprobs");
        write_token_logprobs(writer, item.logprobs);
      },
      out);
  if (item.kind != Kind::kCall) {
    item_event(
        "response.content_part.done", place,
        [&](JsonWriter& writer) {
          writer.key("part");
          write_content_part(writer, item);
        },
        out);
  }
  summary_event(
      "response.reasoning_summary_text.done", place,
      [&](JsonWriter& writer) { writer.key("text").string(item.text); }, out);
  summary_event(
      "response.reasoning_summary_part.done", place,
      [&](JsonWriter& writer) { write_summary_part(writer.key("part"), item.text); }, out);
  event(
      "response.output_item.done",
      [&](JsonWriter& writer) {
        writer.key("output_index").integer(static_cast<int64_t>(place.index)).key("item");
        write_output_item(writer, item);
      },
      out);
}

}  // namespace pelton::api

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
    case Kind::kCode:
      return "response.code_interpreter_call_code.delta";
    case Kind::kCall:
    case Kind::kWebSearch:
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
    case Kind::kCode:
    case Kind::kCall:
    case Kind::kWebSearch:
      break;
  }
  return "response.function_call_arguments.done";
}

// Of a tool's call that the server runs: "response.web_search_call.searching".
std::string builtin_type(Kind kind, std::string_view web, std::string_view code) {
  std::string type = "response.";
  type += kind == Kind::kWebSearch ? "web_search_call." : "code_interpreter_call.";
  return type.append(kind == Kind::kWebSearch ? web : code);
}

constexpr auto kNothingMore = [](JsonWriter&) {};

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
        if (place.item.has_parts()) writer.key("content_index").integer(0);
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
  if (place.item.is_builtin_call()) {
    item_event(builtin_type(place.item.kind, "in_progress", "in_progress"), place, kNothingMore,
               out);
  }
  if (!place.item.has_parts()) return;
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
  if (place.item.kind == Kind::kWebSearch) return;  // its arguments are in the item alone
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

void ResponseEvents::call_runs(const Place& place, std::string& out) {
  if (place.item.kind == Kind::kCode) {
    item_event(
        "response.code_interpreter_call_code.done", place,
        [&](JsonWriter& writer) { writer.key("code").string(place.item.text); }, out);
  }
  item_event(builtin_type(place.item.kind, "searching", "interpreting"), place, kNothingMore, out);
}

void ResponseEvents::item_ends(const Place& place, std::string& out) {
  const OutputItem& item = place.item;
  if (item.is_builtin_call()) {
    if (item.status == OutputItem::Status::kCompleted) {
      item_event(builtin_type(item.kind, "completed", "completed"), place, kNothingMore, out);
    }
    return item_is_done(place, out);
  }
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
  if (item.has_parts()) {
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
  item_is_done(place, out);
}

void ResponseEvents::item_is_done(const Place& place, std::string& out) {
  event(
      "response.output_item.done",
      [&](JsonWriter& writer) {
        writer.key("output_index").integer(static_cast<int64_t>(place.index)).key("item");
        write_output_item(writer, place.item);
      },
      out);
}

}  // namespace pelton::api

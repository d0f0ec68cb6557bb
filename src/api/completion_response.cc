#include "api/completion_response.h"

#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

void write_head(JsonWriter& writer, const CompletionAnswerHead& head) {
  writer.key("id").string(head.id);
  writer.key("object").string("text_completion");
  writer.key("created").integer(head.created);
  writer.key("model").string(head.model);
  writer.key("choices");
}

void write_choice(JsonWriter& writer, const CompletionChoice& choice) {
  writer.begin_object().key("index").integer(choice.index).key("text").string(choice.text);
  writer.key("logprobs");
  if (choice.logprobs) {
    write_completion_logprobs(writer, *choice.logprobs);
  } else {
    writer.null();
  }
  writer.key("finish_reason");
  if (choice.finish_reason.empty()) {
    writer.null();
  } else {
    writer.string(choice.finish_reason);
  }
  writer.key("stop_reason");
  write_stop_reason(writer, choice.stop_reason);
  if (choice.token_ids) {
    writer.key("token_ids");
    write_token_ids(writer, *choice.token_ids);
  }
  if (choice.prompt_token_ids != nullptr) {
    writer.key("prompt_token_ids");
    write_token_ids(writer, *choice.prompt_token_ids);
  }
  if (choice.prompt_logprobs != nullptr) {
    writer.key("prompt_logprobs");
    write_prompt_logprobs(writer, *choice.prompt_logprobs);
  }
  writer.end_object();
}

std::string chunk_head(const CompletionAnswerHead& head) {
  std::string text;
  JsonWriter writer(text);
  writer.begin_object();
  write_head(writer, head);
  return text;
}

}  // namespace

std::string completion_answer_body(const CompletionAnswerHead& head,
                                   const std::vector<CompletionChoice>& choices, const Usage& usage,
                                   const Timings* timings) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object();
  write_head(writer, head);
  writer.begin_array();
  for (const CompletionChoice& choice : choices) write_choice(writer, choice);
  writer.end_array().key("usage");
  write_usage(writer, usage);
  if (timings != nullptr) {
    writer.key("timings");
    write_timings(writer, *timings);
  }
  writer.end_object();
  return body;
}

CompletionChunks::CompletionChunks(const CompletionAnswerHead& head, bool usage_follows)
    : head_(chunk_head(head)), tail_(usage_follows ? ",\"usage\":null}" : "}") {}

void CompletionChunks::choice(const CompletionChoice& choice, std::string& out) const {
  out += head_;
  JsonWriter writer(out);
  writer.begin_array();
  write_choice(writer, choice);
  writer.end_array();
  out += tail_;
}

void CompletionChunks::add_usage(const Usage& usage) {
  tail_ = ",\"usage\":";
  JsonWriter writer(tail_);
  write_usage(writer, usage);
  tail_ += '}';
}

void CompletionChunks::last(const Usage* usage, const Timings* timings, std::string& out) const {
  out += head_;
  out += "[]";
  end_last_event(out, usage, timings);
}

}  // namespace pelton::api

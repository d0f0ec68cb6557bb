#include "bench/question.h"

#include <algorithm>

#include "base/json_writer.h"
#include "bench/ranking.h"

namespace pelton::bench {
namespace {

using base::JsonWriter;

bool replaced(const QuestionOptions& options, std::string_view key) {
  return options.extra.find(key) != nullptr;
}

void write_message(JsonWriter& w, std::string_view role, std::string_view text) {
  w.begin_object().key("role").string(role).key("content").string(text).end_object();
}

void write_messages(JsonWriter& w, const workload::Conversation& conversation,
                    const std::vector<Said>& before, const workload::Turn& turn) {
  if (!turn.messages_json.empty()) {
    w.raw(turn.messages_json);
    return;
  }
  w.begin_array();
  if (!conversation.system.empty()) write_message(w, "system", conversation.system);
  for (const Said& said : before) write_message(w, said.by_user ? "user" : "assistant", said.text);
  write_message(w, "user", turn.prompt);
  w.end_array();
}

std::string whole_prompt(const workload::Conversation& conversation,
                         const std::vector<Said>& before, const workload::Turn& turn) {
  std::string prompt = conversation.system;
  for (const Said& said : before) prompt += said.text;
  return prompt + turn.prompt;
}

std::string_view input_key(Backend backend) {
  if (backend == Backend::kCompletions) return "prompt";
  if (backend == Backend::kRerank) return "documents";
  return backend == Backend::kChat ? "messages" : "input";
}

void write_input(JsonWriter& w, const Target& target, const workload::Conversation& conversation,
                 const std::vector<Said>& before, const workload::Turn& turn) {
  if (target.backend != Backend::kRerank) w.key(input_key(target.backend));
  switch (target.backend) {
    case Backend::kCompletions:
      w.string(whole_prompt(conversation, before, turn));
      return;
    case Backend::kChat:
    case Backend::kResponses:
      write_messages(w, conversation, before, turn);
      return;
    case Backend::kEmbeddings:
      w.string(turn.prompt);
      return;
    case Backend::kRerank:
      return;  // write_ranked
  }
}

// Of query and documents what the user has not written.
void write_ranked(JsonWriter& w, const QuestionOptions& options, const workload::Turn& turn) {
  const RankedTexts texts = ranked_texts(turn.prompt, options.rerank_documents);
  if (!replaced(options, "query")) w.key("query").string(texts.query);
  if (replaced(options, "documents")) return;
  w.key("documents").begin_array();
  for (const std::string& document : texts.documents) w.string(document);
  w.end_array();
}

std::string_view length_key(Backend backend) {
  switch (backend) {
    case Backend::kChat:
      return "max_completion_tokens";
    case Backend::kResponses:
      return "max_output_tokens";
    default:
      return "max_tokens";
  }
}

constexpr std::string_view kLengthKeys[] = {"max_tokens", "max_completion_tokens",
                                            "max_output_tokens"};

// A count in the body that the user wrote; 0: it is none.
int64_t extra_count(const QuestionOptions& options, std::string_view key) {
  constexpr double kMost = 1 << 30;
  const Json* const value = options.extra.find(key);
  if (value == nullptr || !value->is_number()) return 0;
  return static_cast<int64_t>(std::clamp(value->as_number(), 0.0, kMost));
}

// Answers to one request.
int64_t choice_count(const QuestionOptions& options) {
  const int64_t each =
      std::max({extra_count(options, "n"), extra_count(options, "best_of"), int64_t{1}});
  const Json* const prompts = options.extra.find("prompt");
  // A list of numbers is one prompt in tokens.
  const bool several = prompts != nullptr && prompts->is_array() && !prompts->as_array().empty() &&
                       !prompts->as_array().front().is_number();
  return several ? each * static_cast<int64_t>(prompts->as_array().size()) : each;
}

void write_streaming(JsonWriter& w, const Target& target, const QuestionOptions& options) {
  if (!replaced(options, "stream")) w.key("stream").boolean(true);
  const bool takes_options = target.backend != Backend::kResponses;
  if (!takes_options || options.counts == Counts::kNever || replaced(options, "stream_options")) {
    return;
  }
  w.key("stream_options").begin_object().key("include_usage").boolean(true);
  if (options.counts == Counts::kEachPiece) w.key("continuous_usage_stats").boolean(true);
  w.end_object();
}

}  // namespace

std::string question_body(const Target& target, const QuestionOptions& options,
                          const workload::Conversation& conversation,
                          const std::vector<Said>& before, const workload::Turn& turn,
                          const std::string& model) {
  std::string body;
  JsonWriter w(body);
  w.begin_object();
  if (!replaced(options, "model")) w.key("model").string(model);
  if (target.backend == Backend::kRerank) {
    write_ranked(w, options, turn);
  } else if (!replaced(options, input_key(target.backend))) {
    write_input(w, target, conversation, before, turn);
  }
  if (generates(target.backend)) {
    const std::string_view key = length_key(target.backend);
    if (turn.output_tokens > 0 && !replaced(options, key)) w.key(key).integer(turn.output_tokens);
    if (options.ignore_eos && !replaced(options, "ignore_eos")) w.key("ignore_eos").boolean(true);
    for (const Json::Member& member : options.sampling) {
      if (!replaced(options, member.key)) w.key(member.key).value(member.value);
    }
    write_streaming(w, target, options);
  }
  for (const Json::Member& member : options.extra.as_object()) {
    w.key(member.key).value(member.value);
  }
  w.end_object();
  return body;
}

int64_t asked_tokens(const Target& target, const QuestionOptions& options,
                     const workload::Turn& turn) {
  int64_t length = replaced(options, length_key(target.backend)) ? 0 : turn.output_tokens;
  // Where several of them are said, a server decides which one counts.
  for (const std::string_view key : kLengthKeys) {
    length = std::max(length, extra_count(options, key));
  }
  return length * choice_count(options);
}

AnswerLimits answer_limits(const Target& target, const QuestionOptions& options,
                           const workload::Turn& turn) {
  AnswerLimits limits = AnswerLimits::for_asked(asked_tokens(target, options, turn));
  if (target.backend != Backend::kRerank) return limits;
  const Json* const documents = options.extra.find("documents");
  limits.documents = documents != nullptr && documents->is_array()
                         ? std::ssize(documents->as_array())
                         : options.rerank_documents;
  const int64_t top = extra_count(options, "top_n");
  limits.results = top > 0 ? std::min(top, limits.documents) : limits.documents;
  return limits;
}

}  // namespace pelton::bench

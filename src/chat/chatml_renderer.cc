#include "chat/chatml_renderer.h"

#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "chat/spaced_json.h"

namespace pelton::chat {
namespace {

using Kind = Message::Kind;

std::string_view without_newlines_before(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view without_newlines(std::string_view text) {
  text = without_newlines_before(text);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

void append_tool(std::string& out, const FunctionTool& tool) {
  out += R"({"type": "function", "function": {"name": )";
  base::append_json_string(out, tool.name);
  if (!tool.description.empty()) {
    out += R"(, "description": )";
    base::append_json_string(out, tool.description);
  }
  if (tool.parameters) {
    out += R"(, "parameters": )";
    append_spaced_json(out, *tool.parameters);
  }
  out += "}}";
}

// What a system block says: instructions, then the functions and how they are called.
MarkedText system_text(const DeveloperContent& content) {
  MarkedText out;
  out.add(content.instructions.value_or(""));
  if (content.functions.empty()) return out;
  if (!out.empty()) out.add("\n\n");
  out.add(
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>");
  for (const FunctionTool& tool : content.functions) {
    std::string line = "\n";
    append_tool(line, tool);
    out.add(line);
  }
  out.add(
      "\n</tools>\n\nFor each function call, return a json object with function name and "
      "arguments within ");
  out.mark(kToolCall);
  out.mark(kToolCallEnd);
  out.add(" XML tags:\n");
  out.mark(kToolCall);
  out.add("\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n");
  out.mark(kToolCallEnd);
  return out;
}

void add_call(MarkedText& out, const Message& call) {
  std::string json = "\n{\"name\": ";
  base::append_json_string(json, call.name);
  json += ", \"arguments\": ";
  const Result<Json> arguments = Json::parse(call.text);
  if (arguments.ok()) {
    append_spaced_json(json, *arguments);
  } else {
    json += call.text.empty() ? "{}" : call.text;
  }
  out.mark(kToolCall);
  out.add(json + "}\n");
  out.mark(kToolCallEnd);
}

// What a client sends of a turn may have the reasoning between its markers.
struct Said {
  std::string reasoning;
  std::string content;
};

void split_inline_reasoning(Said& said) {
  const size_t first = said.content.find(kThinkEnd);
  if (!said.reasoning.empty() || first == std::string::npos) return;
  std::string_view thought = std::string_view(said.content).substr(0, first);
  const size_t begin = thought.rfind(kThink);
  if (begin != std::string_view::npos) thought.remove_prefix(begin + kThink.size());
  said.reasoning = without_newlines(thought);
  const size_t last = said.content.rfind(kThinkEnd);
  said.content =
      without_newlines_before(std::string_view(said.content).substr(last + kThinkEnd.size()));
}

class BlockBuilder {
 public:
  explicit BlockBuilder(const std::vector<Message>& messages)
      : messages_(messages), asked_(end_of_last(messages, Kind::kUser)) {}

  std::vector<ChatMlBlock> build() {
    for (size_t i = 0; i < messages_.size();) {
      const Message& message = messages_[i];
      if (message.is_models()) {
        i = add_turn(i);
      } else if (message.kind == Kind::kResult) {
        i = add_results(i);
      } else {
        if (message.kind == Kind::kUser) {
          add_block("user").text.add(message.text);
        } else {
          add_system(message.developer);
        }
        ++i;
      }
    }
    return std::move(blocks_);
  }

 private:
  ChatMlBlock& add_block(std::string_view role) {
    ChatMlBlock& block = blocks_.emplace_back();
    block.role = role;
    return block;
  }

  void add_system(const DeveloperContent& content) {
    MarkedText text = system_text(content);
    if (!text.empty()) add_block("system").text = std::move(text);
  }

  size_t add_results(size_t first) {
    size_t end = first;
    MarkedText& text = add_block("user").text;
    DeveloperContent loaded;
    for (; end < messages_.size() && messages_[end].kind == Kind::kResult; ++end) {
      if (end > first) text.add("\n");
      text.mark(kToolResponse);
      text.add("\n" + messages_[end].text + "\n");
      text.mark(kToolResponseEnd);
      const std::vector<FunctionTool>& functions = messages_[end].developer.functions;
      loaded.functions.insert(loaded.functions.end(), functions.begin(), functions.end());
    }
    add_system(loaded);
    return end;
  }

  size_t add_turn(size_t first) {
    size_t end = first;
    Said said;
    MarkedText calls;
    const auto join = [](std::string& whole, std::string_view piece, std::string_view separator) {
      if (!whole.empty() && !piece.empty()) whole += separator;
      whole += piece;
    };
    for (; end < messages_.size() && messages_[end].is_models() &&
           messages_[end].turn == messages_[first].turn;
         ++end) {
      const Message& part = messages_[end];
      if (part.kind == Kind::kReasoning) {
        join(said.reasoning, part.text, "\n");
      } else if (part.kind == Kind::kCall) {
        if (!calls.empty()) calls.add("\n");
        add_call(calls, part);
      } else {
        join(said.content, part.text, "\n\n");
      }
    }
    split_inline_reasoning(said);
    // Reasoning is shown again while the turn is open: nobody has asked anything since.
    const bool is_open = first >= asked_;
    ChatMlBlock& block = add_block("assistant");
    block.shows_reasoning = is_open;
    if (messages_[first].as_sampled) block.turn = messages_[first].turn;
    std::string_view content = said.content;
    if (is_open && (end == messages_.size() || !said.reasoning.empty())) {
      block.text.mark(kThink);
      block.text.add("\n");
      block.text.add(without_newlines(said.reasoning));
      block.text.add("\n");
      block.text.mark(kThinkEnd);
      block.text.add("\n\n");
      content = without_newlines_before(content);
    }
    block.text.add(content);
    if (!said.content.empty() && !calls.empty()) block.text.add("\n");
    block.text.add(calls);
    return end;
  }

  const std::vector<Message>& messages_;
  const size_t asked_;  // messages from here on are the open turn's
  std::vector<ChatMlBlock> blocks_;
};

}  // namespace

std::vector<ChatMlBlock> chatml_blocks(const Conversation& conversation) {
  return BlockBuilder(conversation.messages).build();
}

void MarkedText::add(const MarkedText& other) {
  for (const Mark& mark : other.marks_) marks_.push_back({text_.size() + mark.at, mark.marker});
  text_ += other.text_;
}

void MarkedText::mark(std::string_view marker) {
  marks_.push_back({text_.size(), marker});
  text_ += marker;
}

void MarkedText::append_tokens(const tokenizer::Tokenizer& tokenizer, const ChatMlTokens& tokens,
                               std::vector<TokenId>& out) const {
  const std::string_view all = text_;
  size_t begin = 0;
  for (const Mark& mark : marks_) {
    const std::optional<TokenId> token = tokens.marker(mark.marker);
    if (!token) continue;
    tokenizer.encode(all.substr(begin, mark.at - begin), out);
    out.push_back(*token);
    begin = mark.at + mark.marker.size();
  }
  tokenizer.encode(all.substr(begin), out);
}

void append_block(const ChatMlBlock& block, const tokenizer::Tokenizer& tokenizer,
                  const ChatMlTokens& tokens, std::vector<TokenId>& out) {
  out.push_back(tokens.start);
  MarkedText text;
  text.add(block.role);
  text.add("\n");
  text.add(block.text);
  text.append_tokens(tokenizer, tokens, out);
  out.push_back(tokens.end);
  tokenizer.encode("\n", out);
}

std::string chatml_text(const Conversation& conversation) {
  std::string out;
  for (const ChatMlBlock& block : chatml_blocks(conversation)) {
    out += "<|im_start|>";
    out += block.role;
    out += "\n" + block.text.text() + "<|im_end|>\n";
  }
  return out;
}

}  // namespace pelton::chat

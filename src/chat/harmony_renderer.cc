#include "chat/harmony_renderer.h"

#include <algorithm>
#include <type_traits>

#include "chat/typescript_schema.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kConstrainMarker = "<|constrain|>";

// Where the rendered pieces go: to tokens, or to text for people.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void control(TokenId HarmonyTokens::*which, std::string_view spelled) = 0;
  virtual void text(std::string_view piece) = 0;
};

class TokenSink final : public Sink {
 public:
  TokenSink(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens)
      : tokenizer_(tokenizer), tokens_(tokens) {}

  void control(TokenId HarmonyTokens::*which, std::string_view) override {
    out.push_back(tokens_.*which);
  }
  void text(std::string_view piece) override { tokenizer_.encode(piece, out); }

  std::vector<TokenId> out;

 private:
  const tokenizer::Tokenizer& tokenizer_;
  const HarmonyTokens& tokens_;
};

void turn_start(Sink& sink) {
  sink.control(&HarmonyTokens::start, "<|start|>");
  sink.text(role_name(Role::kAssistant));
}

class TextSink final : public Sink {
 public:
  void control(TokenId HarmonyTokens::*, std::string_view spelled) override { out += spelled; }
  void text(std::string_view piece) override { out += piece; }

  std::string out;
};

void append_blank_line(std::string& out) {
  if (!out.empty()) out += "\n\n";
}

void append_namespace(std::string& out, std::string_view name, std::string_view description,
                      const std::vector<FunctionTool>& functions) {
  out.append("## ").append(name).append("\n\n");
  if (functions.empty()) {
    out += description;
    return;
  }
  append_comment_lines(out, description);
  out.append("namespace ").append(name).append(" {\n\n");
  for (const FunctionTool& function : functions) {
    append_comment_lines(out, function.description);
    out += "type " + function.name + " = (";
    if (function.parameters) out += "_: " + typescript_type(*function.parameters);
    out += ") => any;\n\n";
  }
  out.append("} // namespace ").append(name);
}

void append_builtin_tools(std::string& out, const std::vector<ToolNamespace>& tools) {
  std::vector<const ToolNamespace*> by_name;
  for (const ToolNamespace& tool : tools) by_name.push_back(&tool);
  std::sort(by_name.begin(), by_name.end(),
            [](const ToolNamespace* a, const ToolNamespace* b) { return a->name < b->name; });
  append_blank_line(out);
  out += "# Tools";
  for (const ToolNamespace* tool : by_name) {
    append_blank_line(out);
    append_namespace(out, tool->name, tool->description, tool->functions);
  }
}

std::string channels_text(const SystemContent& system, bool has_functions) {
  std::string out = "# Valid channels: ";
  for (size_t i = 0; i < system.valid_channels.size(); ++i) {
    if (i > 0) out += ", ";
    out += system.valid_channels[i];
  }
  out += ". Channel must be included for every message.";
  if (has_functions) {
    out += "\nCalls to these tools must go to the commentary channel: 'functions'.";
  }
  return out;
}

std::string system_text(const SystemContent& system, bool has_functions) {
  std::string out;
  const auto add_line = [&out](std::string_view label, const std::optional<std::string>& value) {
    if (!value) return;
    if (!out.empty()) out += '\n';
    out.append(label).append(*value);
  };
  add_line("", system.model_identity);
  add_line("Knowledge cutoff: ", system.knowledge_cutoff);
  add_line("Current date: ", system.current_date);
  if (system.reasoning_effort) {
    append_blank_line(out);
    out.append("Reasoning: ").append(effort_name(*system.reasoning_effort));
  }
  if (!system.tools.empty()) append_builtin_tools(out, system.tools);
  if (!system.valid_channels.empty()) {
    append_blank_line(out);
    out += channels_text(system, has_functions);
  }
  return out;
}

std::string developer_text(const DeveloperContent& developer) {
  std::string out;
  if (developer.instructions) out = "# Instructions\n\n" + *developer.instructions;
  if (!developer.functions.empty()) {
    append_blank_line(out);
    out += "# Tools\n\n";
    append_namespace(out, "functions", "", developer.functions);
  }
  if (!developer.response_formats.empty()) {
    append_blank_line(out);
    out += "# Response Formats";
    for (const ResponseFormat& format : developer.response_formats) {
      out += "\n\n## " + format.name + "\n\n";
      append_comment_lines(out, format.description);
      out += format.schema.dump();
    }
  }
  return out;
}

class Rendering {
 public:
  Rendering(const HarmonyConversation& conversation, const RenderOptions& options, Sink& sink)
      : messages_(conversation.messages), options_(options), sink_(sink) {}

  void run() {
    const size_t first_final = options_.library_drops_analysis ? library_drop_end() : 0;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (i < first_final && messages_[i].channel == kAnalysis) continue;
      message(i);
    }
    if (options_.mode == RenderMode::kCompletion) turn_start(sink_);
  }

  void message(size_t index) {
    header(messages_[index]);
    content(messages_[index]);
    terminator(messages_[index], index + 1 == messages_.size());
  }

 private:
  static bool declares_functions(const HarmonyMessage& message) {
    return std::any_of(message.content.begin(), message.content.end(), [](const Content& part) {
      const auto* developer = std::get_if<DeveloperContent>(&part);
      return developer != nullptr && !developer->functions.empty();
    });
  }

  // Analysis before this index is dropped.
  size_t library_drop_end() const {
    const auto last =
        std::find_if(messages_.rbegin(), messages_.rend(),
                     [](const HarmonyMessage& m) { return m.role == Role::kAssistant; });
    if (last == messages_.rend() || last->channel != kFinal) return 0;
    const auto first = std::find_if(messages_.begin(), messages_.end(),
                                    [](const HarmonyMessage& m) { return m.channel == kFinal; });
    return static_cast<size_t>(first - messages_.begin());
  }

  void header(const HarmonyMessage& message) {
    sink_.control(&HarmonyTokens::start, "<|start|>");
    if (message.role == Role::kTool && !message.name.empty()) {
      sink_.text(message.name);
    } else {
      sink_.text(role_name(message.role));
      if (!message.name.empty()) sink_.text(":" + message.name);
    }
    if (message.recipient && *message.recipient != "all") sink_.text(" to=" + *message.recipient);
    if (message.channel) {
      sink_.control(&HarmonyTokens::channel, "<|channel|>");
      sink_.text(*message.channel);
    }
    if (message.content_type) content_type(*message.content_type);
    sink_.control(&HarmonyTokens::message, "<|message|>");
  }

  void content_type(std::string_view type) {
    if (!type.starts_with(kConstrainMarker)) return sink_.text(" " + std::string(type));
    sink_.text(" ");
    sink_.control(&HarmonyTokens::constrain, kConstrainMarker);
    sink_.text(type.substr(kConstrainMarker.size()));
  }

  void content(const HarmonyMessage& message) {
    for (const Content& part : message.content) {
      std::visit(
          [this](const auto& value) {
            using Value = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<Value, std::string>) {
              sink_.text(value);
            } else if constexpr (std::is_same_v<Value, SystemContent>) {
              const bool has_functions =
                  std::any_of(messages_.begin(), messages_.end(), declares_functions);
              sink_.text(system_text(value, has_functions));
            } else {
              sink_.text(developer_text(value));
            }
          },
          part);
    }
  }

  void terminator(const HarmonyMessage& message, bool is_last) {
    const bool by_assistant = message.role == Role::kAssistant;
    if (by_assistant && message.recipient) {
      sink_.control(&HarmonyTokens::call, "<|call|>");
    } else if (by_assistant && is_last && message.channel == kFinal &&
               options_.mode == RenderMode::kTraining) {
      sink_.control(&HarmonyTokens::return_, "<|return|>");
    } else {
      sink_.control(&HarmonyTokens::end, "<|end|>");
    }
  }

  const std::vector<HarmonyMessage>& messages_;
  const RenderOptions& options_;
  Sink& sink_;
};

}  // namespace

std::vector<TokenId> HarmonyRenderer::render(const HarmonyConversation& conversation,
                                             const RenderOptions& options) const {
  TokenSink sink(tokenizer_, tokens_);
  Rendering(conversation, options, sink).run();
  return std::move(sink.out);
}

void HarmonyRenderer::append(const HarmonyConversation& conversation, const MessageRange& range,
                             std::vector<TokenId>& out) const {
  TokenSink sink(tokenizer_, tokens_);
  sink.out = std::move(out);
  const RenderOptions plain{.mode = RenderMode::kPlain, .library_drops_analysis = false};
  Rendering rendering(conversation, plain, sink);
  for (size_t i = range.first; i < range.end; ++i) rendering.message(i);
  out = std::move(sink.out);
}

void HarmonyRenderer::append_turn_start(std::vector<TokenId>& out) const {
  TokenSink sink(tokenizer_, tokens_);
  sink.out = std::move(out);
  turn_start(sink);
  out = std::move(sink.out);
}

std::string render_text(const HarmonyConversation& conversation, const RenderOptions& options) {
  TextSink sink;
  Rendering(conversation, options, sink).run();
  return std::move(sink.out);
}

}  // namespace pelton::chat

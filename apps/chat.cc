// pelton chat: a conversation in the terminal.
#include <fmt/format.h>

#include "apps/chat_session.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "cli/human_size.h"
#include "cli/line_editor.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::string_view kHelp =
    "  /reasoning low|medium|high   how long it thinks\n"
    "  /clear                       a new conversation\n"
    "  /help                        this text\n"
    "  /quit                        the end; so does Ctrl-D\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.\n";

enum class After { kGoOn, kQuit };

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

After obey(std::string_view command, ChatSession& session) {
  if (command == "/quit" || command == "/exit" || command == "/bye") return After::kQuit;
  if (command == "/clear") {
    session.clear();
    fmt::print(stderr, "A new conversation.\n");
  } else if (command == "/help") {
    fmt::print(stderr, "{}", kHelp);
  } else if (command.starts_with("/reasoning")) {
    const auto effort = chat::effort_from_name(trimmed(command.substr(10)));
    if (effort) session.set_effort(*effort);
    fmt::print(stderr, "{}\n",
               effort ? fmt::format("Reasoning is {}.", chat::effort_name(*effort))
                      : "Say low, medium or high.");
  } else {
    fmt::print(stderr, "There is no {}; /help lists what there is.\n", command);
  }
  return After::kGoOn;
}

void answer(const std::string& text, ChatSession& session, const cli::Terminal& terminal) {
  const Result<ChatSession::Answer> answer = session.ask(text, terminal);
  const cli::Terminal notes(stderr);
  if (!answer) {
    fmt::print(stderr, "{}\n", answer.error().message);
    return;
  }
  if (!notes.interactive()) return;
  const char* how = answer->interrupted ? "stopped; " : answer->cut ? "cut off; " : "";
  fmt::print(stderr, "{}\n",
             notes.dim(fmt::format("({}{} tokens, {})", how, answer->tokens,
                                   cli::format_duration(answer->seconds))));
}

// Until the user leaves. Ctrl-C at an empty prompt does no harm; twice in a row it leaves.
Result<void> converse(ChatSession& session, cli::Interrupt& interrupt) {
  const cli::Terminal terminal(stdout);
  cli::LineEditor editor("pelton", "> ", interrupt);
  bool interrupted_before = false;
  while (true) {
    const cli::LineEditor::Outcome outcome = editor.read();
    if (outcome == cli::LineEditor::Outcome::kEnd) return {};
    if (outcome == cli::LineEditor::Outcome::kInterrupted) {
      if (interrupt.by_terminate()) return {};
      interrupt.clear();
      if (interrupted_before) return Error{ErrorCode::kCancelled, "interrupted"};
      interrupted_before = true;
      fmt::print(stderr, "(Ctrl-D or /quit leaves)\n");
      continue;
    }
    interrupted_before = false;
    const std::string_view line = trimmed(editor.line());
    if (line.empty()) continue;
    if (line.front() == '/') {
      if (obey(line, session) == After::kQuit) return {};
      continue;
    }
    answer(std::string(line), session, terminal);
    if (interrupt.by_terminate()) return {};
    interrupt.clear();
  }
}

Result<void> run(const cli::Arguments& arguments) {
  TRY(check_date(arguments.text("--current-date")));
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kWarning});
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  options.executor.sequences_max = 1;
  TRY_ASSIGN(const std::unique_ptr<node::LoadedModel> model,
             load_model(arguments.text("MODEL"), options, nullptr, clock, log));
  const ChatSession::Options session_options{
      .effort = *chat::effort_from_name(arguments.text("--reasoning")),
      .instructions = arguments.text("--system"),
      .current_date = arguments.has("--current-date") ? arguments.text("--current-date")
                                                      : base::local_date(clock.unix_ms()),
      .sampling = sampling_params(arguments),
      .tokens_max = static_cast<int>(arguments.integer("--max-tokens"))};
  cli::Interrupt interrupt;
  TRY_ASSIGN(ChatSession session, ChatSession::make(*model, session_options, interrupt));
  if (cli::is_terminal(stderr)) {
    fmt::print(stderr, "Context {} tokens. /help lists the commands.\n",
               cli::format_count(model->engine().capacity().context_tokens_max));
  }
  return converse(session, interrupt);
}

}  // namespace

cli::Verb chat_verb() {
  cli::Verb verb{
      .name = "chat",
      .summary = "Talks with a model in the terminal.",
      .about =
          "Streams the answer, its reasoning dimmed. Reads questions from a pipe too, one a line.\n"
          "In the chat, /help lists the commands.",
      .positionals = {{"MODEL", "a model folder or a hub id"}},
      .flags = {{.name = "--reasoning",
                 .value = "EFFORT",
                 .help = "how long it thinks",
                 .default_text = "medium",
                 .choices = {"low", "medium", "high"}},
                {.name = "--system", .value = "TEXT", .help = "instructions to the model"},
                {.name = "--max-tokens",
                 .value = "N",
                 .help = "of one answer, reasoning included",
                 .kind = Flag::Kind::kSize,
                 .default_text = "8K",
                 .least = 1,
                 .most = 1 << 30},
                {.name = "--current-date",
                 .value = "YYYY-MM-DD",
                 .help = "what the model is told; default today"}},
      .examples = {"pelton chat openai/gpt-oss-20b --reasoning low",
                   "echo 'What is a Pelton wheel?' | pelton chat ./model"},
      .run = run,
  };
  for (Flag& flag : sampling_flags("1")) verb.flags.push_back(std::move(flag));
  for (Flag& flag : model_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps

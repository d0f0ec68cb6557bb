// pelton chat: a conversation in the terminal.
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "apps/chat_session.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/model_fetch.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/terminal_text.h"
#include "base/utf8.h"
#include "cli/human_size.h"
#include "cli/line_editor.h"
#include "cli/question_lines.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::string_view kHelp =
    "  /reasoning low|medium|high   how long it thinks\n"
    "  /file PATH                   put a file's text before the next question\n"
    "  /clear                       a new conversation\n"
    "  /help                        this text\n"
    "  /quit                        the end; so does Ctrl-D\n"
    "Ctrl-C stops an answer. What is pasted is one question, however many lines it has. A line\n"
    "that ends in \\ goes on in the next one; from \"\"\" to \"\"\" (or Ctrl-D) all are one.\n";

constexpr size_t kFileBytesMax = size_t{4} << 20;  // far beyond any context

// A file as a question or a part of one.
Result<std::string> read_text(const std::string& file) {
  Result<std::string> text = file == "-" ? read_input(file) : base::read_file(file, kFileBytesMax);
  if (!text) return Error{ErrorCode::kIo, text.error().message, "--file"};
  if (text->size() > kFileBytesMax || !base::is_valid_utf8(*text) ||
      text->find('\0') != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is no text in UTF-8 of at most {}", file,
                             cli::format_bytes(static_cast<double>(kFileBytesMax))),
                 "--file"};
  }
  return text;
}

enum class After { kGoOn, kQuit };

After obey(std::string_view command, ChatSession& session, cli::QuestionLines& question) {
  if (command == "/quit" || command == "/exit" || command == "/bye") return After::kQuit;
  if (command == "/clear") {
    session.clear();
    question.clear();
    fmt::print(stderr, "A new conversation.\n");
  } else if (command == "/help") {
    fmt::print(stderr, "{}", kHelp);
  } else if (command == "/file" || command.starts_with("/file ")) {
    const std::string file(cli::trimmed(command.substr(5)));
    Result<std::string> text = file.empty() || file == "-"
                                   ? Error{ErrorCode::kInvalidArgument, "Say which: /file PATH."}
                                   : read_text(file);
    fmt::print(stderr, "{}\n",
               text ? fmt::format("{} goes before the next question.",
                                  cli::format_bytes(static_cast<double>(text->size())))
                    : base::without_controls(text.error().message));
    if (text) question.attach(*text);
  } else if (command.starts_with("/reasoning")) {
    const auto effort = chat::effort_from_name(cli::trimmed(command.substr(10)));
    if (effort) session.set_effort(*effort);
    fmt::print(stderr, "{}\n",
               effort ? fmt::format("Reasoning is {}.", chat::effort_name(*effort))
                      : "Say low, medium or high.");
  } else {
    fmt::print(stderr, "There is no {}; /help lists what there is.\n",
               base::without_controls(command.substr(0, command.find(' '))));
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
  cli::QuestionLines question(kFileBytesMax);
  bool interrupted_before = false;
  while (true) {
    const cli::LineEditor::Outcome outcome = editor.read();
    if (outcome == cli::LineEditor::Outcome::kEnd && !question.is_fenced()) {
      if (question.has_attachment()) {
        fmt::print(stderr, "note: the file that waited for a question was not sent\n");
      }
      return {};
    }
    if (outcome == cli::LineEditor::Outcome::kInterrupted) {
      if (interrupt.by_terminate()) return {};
      interrupt.clear();
      question.clear();
      if (interrupted_before) return Error{ErrorCode::kCancelled, "interrupted"};
      interrupted_before = true;
      fmt::print(stderr, "(Ctrl-D or /quit leaves)\n");
      continue;
    }
    interrupted_before = false;
    // The input's end closes an open block, as a shell's does a here-document. The next one leaves.
    const std::string said = outcome == cli::LineEditor::Outcome::kEnd
                                 ? std::string(cli::kQuestionFence)
                                 : editor.line();
    const std::string_view line = cli::trimmed(said);
    const bool is_command = line.starts_with('/') && line.find('\n') == std::string_view::npos;
    if (is_command && !question.is_fenced()) {
      if (obey(line, session, question) == After::kQuit) return {};
      continue;
    }
    if (line.empty() && !question.is_fenced()) continue;
    const std::optional<std::string> whole = question.add(said);
    if (!whole) continue;
    answer(*whole, session, terminal);
    if (interrupt.by_terminate()) return {};
    interrupt.clear();
  }
}

// --file and QUESTION as one; empty: the user is asked.
Result<std::string> first_question(const cli::Arguments& arguments) {
  std::string question;
  if (arguments.has("--file")) {
    TRY_ASSIGN(question, read_text(arguments.text("--file")));
  }
  if (!arguments.has("QUESTION")) return question;
  if (!question.empty()) question += "\n\n";
  return question + fmt::format("{}", fmt::join(arguments.list("QUESTION"), " "));
}

// One question, and the end. Its answer fails the run where there is none.
Result<void> ask_once(const std::string& question, ChatSession& session,
                      const cli::Interrupt& interrupt) {
  TRY_ASSIGN(const ChatSession::Answer answer, session.ask(question, cli::Terminal(stdout)));
  if (!answer.interrupted || interrupt.by_terminate()) return {};
  return Error{ErrorCode::kCancelled, "interrupted"};
}

Result<void> run_chat(const cli::Arguments& arguments) {
  TRY(check_date(arguments));
  TRY_ASSIGN(const std::string question, first_question(arguments));
  if (arguments.has("--offline")) ::setenv("HF_HUB_OFFLINE", "1", 1);
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kWarning});
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  options.executor.sequences_max = 1;
  cli::Interrupt interrupt;  // also while it loads: what is half written is taken away
  TRY_ASSIGN(const std::unique_ptr<node::LoadedModel> model,
             load_model(arguments.text("MODEL"), options, stopped_by(interrupt), clock, log));
  const ChatSession::Options session_options{
      .effort = *chat::effort_from_name(arguments.text("--reasoning")),
      .instructions = arguments.text("--system"),
      .current_date = arguments.has("--current-date") ? arguments.text("--current-date")
                                                      : base::local_date(clock.unix_ms()),
      .sampling = sampling_params(arguments),
      .tokens_max = static_cast<int>(arguments.integer("--max-tokens"))};
  TRY_ASSIGN(ChatSession session, ChatSession::make(*model, session_options, interrupt));
  if (!cli::trimmed(question).empty()) return ask_once(question, session, interrupt);
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
          "Streams the answer, its reasoning dimmed. With a QUESTION or --file it answers that "
          "and\n"
          "ends. Reads questions from a pipe too, one a line, or all of it as one with --file -.\n"
          "In the chat, /help lists the commands; what is pasted is one question.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"},
                      {.name = "QUESTION",
                       .help = "answered, and that is all; without it you are asked",
                       .required = false,
                       .many = true}},
      .flags = {{.name = "--file",
                 .value = "FILE",
                 .help = "a text to put before QUESTION, or the question itself; - is standard "
                         "input"},
                {.name = "--reasoning",
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
                 .help = "the date that the model sees; default today"},
                offline_flag()},
      .examples = {"pelton chat openai/gpt-oss-20b --reasoning low",
                   "pelton chat ./model 'What is a Pelton wheel?'",
                   "pelton chat ./model --file report.txt 'Say that in three sentences.'",
                   "echo 'What is a Pelton wheel?' | pelton chat ./model"},
      .run = run_chat,
  };
  for (Flag& flag : sampling_flags("1")) verb.flags.push_back(std::move(flag));
  for (Flag& flag : model_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps

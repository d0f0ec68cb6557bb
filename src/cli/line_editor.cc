#include "cli/line_editor.h"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/paste_reader.h"
#include "cli/terminal.h"

namespace pelton::cli {
namespace {

constexpr int kHistoryLines = 1000;
constexpr int kLookEveryMs = 50;
constexpr wchar_t kMendKey = 0x1D;         // Ctrl-], which nothing else is bound to
constexpr size_t kLineBytesMax = 1 << 20;  // a pasted file is fine; an endless pipe is not

// libedit converts by the locale; a bare "C" would turn every umlaut into noise.
void want_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Session {
  const Interrupt& interrupt;
  std::string prompt;
  bool continued = false;
  bool at_start = false;  // of a line: nothing of it has been read
  const bool styled = Terminal(stderr).styled();
  PasteReader pastes;
  std::string typed;                          // read, and not yet given to libedit
  std::optional<PasteReader::Edited> mended;  // the line as mend() shall make it
  EditLine* editor = nullptr;
  History* history = nullptr;
  HistEvent event{};

  ~Session() {
    if (history != nullptr) history_end(history);
    if (editor != nullptr) el_end(editor);
  }

  explicit Session(const Interrupt& interrupt) : interrupt(interrupt) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  static Session* of(EditLine* editor) {
    void* client = nullptr;
    el_get(editor, EL_CLIENTDATA, &client);
    return static_cast<Session*>(client);
  }

  // False: a signal came first. It may come just before we wait, and then would wake nobody: so we
  // look for it now and then.
  bool wait_for_input() const {
    while (!interrupt.pending()) {
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (::poll(&input, 1, kLookEveryMs) > 0) return true;
    }
    return false;
  }

  static bool input_waits() {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return ::poll(&input, 1, 0) > 0;
  }

  // One byte into `typed`, or several, or none. Like read(): 0 at the end; -1 with errno.
  ssize_t read_typed(bool typed_ahead) {
    constexpr int kMarkMs = 50;  // what a terminal sends as one comes at once
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (pastes.in_mark() && ::poll(&input, 1, kMarkMs) == 0) {
      pastes.flush(typed);
      return 1;
    }
    if (!wait_for_input()) {
      errno = EINTR;
      return -1;
    }
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count <= 0) return count;
    // A Ctrl-D typed while the terminal still gathered lines reads as NUL afterwards.
    if (typed_ahead && byte == '\0') byte = '\4';
    pastes.push(byte, typed);
    return count;
  }

  // Whether a key has left the line otherwise than it should be. libedit redraws only what a key of
  // its own has changed, so one is pressed for it.
  bool wants_mending() {
    if (!typed.empty() || pastes.in_mark() || pastes.inside()) return false;
    const LineInfoW* line = el_wline(editor);
    mended = pastes.mended({.text = {line->buffer, line->lastchar},
                            .cursor = static_cast<size_t>(line->cursor - line->buffer)});
    return mended.has_value();
  }

  static unsigned char mend(EditLine* editor, wint_t /*key*/) {
    const auto line = std::exchange(of(editor)->mended, std::nullopt);
    if (!line) return CC_NORM;
    const LineInfoW* now = el_wline(editor);
    const auto length = static_cast<int>(now->lastchar - now->buffer);
    el_cursor(editor, static_cast<int>(now->lastchar - now->cursor));
    el_wdeletestr(editor, length);
    el_winsertstr(editor, line->text.c_str());
    el_cursor(editor, static_cast<int>(line->cursor) - static_cast<int>(line->text.size()));
    return CC_REFRESH;
  }

  // Reads one character for libedit. Its own reader swallows the first signal; this one reports it
  // (-1, EINTR), so that Ctrl-C gives the line up at once.
  static int read_character(EditLine* editor, wchar_t* character) {
    Session& session = *of(editor);
    if (session.wants_mending()) {
      *character = kMendKey;
      return 1;
    }
    const bool typed_ahead = std::exchange(session.at_start, false) && input_waits();
    std::string bytes;
    while (bytes.size() < 4) {
      while (session.typed.empty()) {
        const ssize_t count = session.read_typed(typed_ahead);
        if (count <= 0) return static_cast<int>(count);
      }
      bytes.push_back(session.typed.front());
      session.typed.erase(0, 1);
      const base::Utf8Step step = base::utf8_step(bytes);
      if (step.kind == base::Utf8Step::Kind::kIncomplete) continue;
      const bool valid = step.kind == base::Utf8Step::Kind::kCodePoint;
      *character = static_cast<wchar_t>(valid ? step.code_point : 0xFFFD);
      return 1;
    }
    *character = 0xFFFD;
    return 1;
  }

  // Whether the terminal marks what is pasted; not while something else writes to it.
  void mark_pastes(bool on) const {
    if (!styled) return;
    std::fputs(std::string(on ? PasteReader::kTurnOn : PasteReader::kTurnOff).c_str(), stderr);
    std::fflush(stderr);
  }

  static char* show_prompt(EditLine* editor) {
    const Session* session = of(editor);
    static char more[] = "... ";
    return session->continued ? more : const_cast<char*>(session->prompt.data());
  }
};

LineEditor::LineEditor(std::string program, std::string prompt, const Interrupt& interrupt) {
  if (!is_terminal(stdin) || !is_terminal(stderr)) return;
  want_utf8_locale();
  session_ = std::make_unique<Session>(interrupt);
  session_->prompt = std::move(prompt);
  // The prompt and echo go to stderr: stdout carries only answers.
  session_->editor = el_init(program.c_str(), stdin, stderr, stderr);
  if (session_->editor == nullptr) {
    session_ = nullptr;
    return;
  }
  session_->history = history_init();
  history(session_->history, &session_->event, H_SETSIZE, kHistoryLines);
  history(session_->history, &session_->event, H_SETUNIQUE, 1);
  el_set(session_->editor, EL_CLIENTDATA, session_.get());
  el_set(session_->editor, EL_PROMPT, &Session::show_prompt);
  el_set(session_->editor, EL_EDITOR, "emacs");
  el_set(session_->editor, EL_HIST, history, session_->history);
  el_set(session_->editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(session_->editor, EL_GETCFN, &Session::read_character);
  el_source(session_->editor, nullptr);  // the user's ~/.editrc
  el_wset(session_->editor, EL_ADDFN, L"pelton-mend", L"Keep pasted texts whole", &Session::mend);
  el_set(session_->editor, EL_BIND, "^]", "pelton-mend", nullptr);
  el_set(session_->editor, EL_BIND, "-a", "^]", "pelton-mend", nullptr);
}

LineEditor::~LineEditor() = default;

LineEditor::Outcome LineEditor::read() {
  line_.clear();
  while (true) {
    std::string piece;
    if (session_) session_->continued = !line_.empty();
    const Outcome outcome = read_once(piece);
    // What has been said is not lost to the end of the input: the next read reports that.
    if (outcome == Outcome::kEnd && !line_.empty()) break;
    if (outcome != Outcome::kLine) {
      line_.clear();
      return outcome;
    }
    const bool goes_on = !piece.empty() && piece.back() == '\\';
    if (goes_on) piece.back() = '\n';
    line_ += piece;
    if (!goes_on || line_.size() > kLineBytesMax) break;
  }
  if (session_ && line_.find_first_not_of(" \t\n") != std::string::npos) {
    history(session_->history, &session_->event, H_ENTER, line_.c_str());
  }
  return Outcome::kLine;
}

LineEditor::Outcome LineEditor::read_once(std::string& line) {
  if (session_) {
    int count = 0;
    errno = 0;
    el_resize(session_->editor);
    session_->at_start = true;
    session_->mark_pastes(true);
    const char* text = el_gets(session_->editor, &count);
    const int failure = errno;
    session_->mark_pastes(false);
    errno = failure;
    if (text == nullptr || count <= 0) {
      const bool interrupted = count < 0 && errno == EINTR;
      session_->pastes.forget();
      std::fputs("\n", stderr);
      return interrupted ? Outcome::kInterrupted : Outcome::kEnd;
    }
    line.assign(text, static_cast<size_t>(count));
    while (!line.empty() && line.back() == '\n') line.pop_back();
    line = session_->pastes.restored(std::move(line));
  } else {
    int byte;
    while ((byte = std::getc(stdin)) != EOF) {
      line.push_back(static_cast<char>(byte));
      if (byte == '\n' || line.size() >= kLineBytesMax) break;
    }
    if (byte == EOF && line.empty()) {
      if (errno == EINTR && !std::feof(stdin)) {
        std::clearerr(stdin);
        return Outcome::kInterrupted;
      }
      return Outcome::kEnd;
    }
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return Outcome::kLine;
}

}  // namespace pelton::cli

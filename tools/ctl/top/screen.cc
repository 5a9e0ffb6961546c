// The only file that knows ncurses.
#include "tools/ctl/top/screen.h"

// Its macros are words like move and clear.
#define NCURSES_NOMACROS
#include <curses.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <signal.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tools/common/text.h"

namespace gradring::tools::top {
namespace {

constexpr int kTenthMs = 100;
constexpr int kEscapeMs = 50;  // whether an Escape begins the sequence of a key
constexpr int kEscape = 27;

volatile sig_atomic_t over = 0;
void end(int) { over = 1; }

enum Pair : short { kGoodPair = 1, kBadPair = 2, kTitlePair = 3 };

bool is_utf8() { return std::string_view(nl_langinfo(CODESET)) == "UTF-8"; }

attr_t attributes_of(Look look, bool colour) {
  const auto pair = [colour](Pair which) {
    return colour ? static_cast<attr_t>(COLOR_PAIR(which)) : attr_t{0};
  };
  switch (look) {
    case Look::kPlain:
      return A_NORMAL;
    case Look::kTitle:
      return A_BOLD | pair(kTitlePair);
    case Look::kHeading:
      return A_UNDERLINE;
    case Look::kSorted:
      return A_UNDERLINE | A_BOLD | pair(kTitlePair);
    case Look::kSelected:
      return A_REVERSE;
    case Look::kGood:
      return pair(kGoodPair);
    case Look::kBad:
      return A_BOLD | pair(kBadPair);
    case Look::kFaint:
      return A_DIM;
  }
  return A_NORMAL;
}

std::optional<Key> key_of(int code) {
  switch (code) {
    case KEY_UP:
      return Key{Key::Kind::kUp};
    case KEY_DOWN:
      return Key{Key::Kind::kDown};
    case KEY_LEFT:
      return Key{Key::Kind::kLeft};
    case KEY_RIGHT:
      return Key{Key::Kind::kRight};
    case KEY_ENTER:
    case '\n':
    case '\r':
      return Key{Key::Kind::kEnter};
    case KEY_BACKSPACE:
    case '\b':
    case 0x7f:
      return Key{Key::Kind::kBackspace};
    case kEscape:
      return Key{Key::Kind::kEscape};
    default:
      break;
  }
  if (code < ' ' || code > 0xff) return std::nullopt;
  return Key{Key::Kind::kCharacter, static_cast<char>(code)};
}

}  // namespace

tl::expected<std::unique_ptr<Screen>, Status> Screen::open(bool colour) {
  const char* const instead = "; \"top --once\" prints one look, --json does as well";
  const auto refuse = [&](const std::string& why) {
    return tl::unexpected(Status(Code::kInvalidArgument, why + instead));
  };
  if (isatty(STDOUT_FILENO) != 1 || isatty(STDIN_FILENO) != 1) {
    return refuse("it needs a terminal to show itself on");
  }
  // Names may be of any script; where the locale has none, terminals understand UTF-8 all the same.
  std::setlocale(LC_CTYPE, "");
  if (!is_utf8()) std::setlocale(LC_CTYPE, "C.UTF-8");
  // Not initscr(), which ends the process where TERM is unknown.
  SCREEN* const screen = newterm(nullptr, stdout, stdin);
  const char* const term = std::getenv("TERM");
  const std::string kind = printable(term == nullptr ? "" : term);
  if (screen == nullptr) {
    return refuse(fmt::format("it does not know terminals of the kind \"{}\" (TERM)", kind));
  }
  // Such as an editor's shell, which can only write on.
  if (tigetstr("cup") == nullptr) {
    reset_shell_mode();
    delscreen(screen);
    return refuse(fmt::format("terminals of the kind \"{}\" (TERM) have no cursor to move", kind));
  }
  return std::unique_ptr<Screen>(new Screen(screen, colour));
}

Screen::Screen(void* terminal, bool colour) : terminal_(terminal), colour_(colour) {
  struct sigaction action {};
  action.sa_handler = end;
  for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, true);
  set_escdelay(kEscapeMs);
  wtimeout(stdscr, kTenthMs);
  curs_set(0);
  colour_ = colour_ && has_colors();
  if (colour_) {
    start_color();
    use_default_colors();
    init_pair(kGoodPair, COLOR_GREEN, -1);
    init_pair(kBadPair, COLOR_RED, -1);
    init_pair(kTitlePair, COLOR_CYAN, -1);
  }
}

Screen::~Screen() {
  endwin();
  delscreen(static_cast<SCREEN*>(terminal_));
}

Size Screen::size() const {
  return {static_cast<size_t>(getmaxx(stdscr)), static_cast<size_t>(getmaxy(stdscr))};
}

void Screen::paint(const std::vector<Line>& frame) {
  werase(stdscr);
  for (size_t row = 0; row < frame.size(); ++row) {
    wmove(stdscr, static_cast<int>(row), 0);
    for (const Span& span : frame[row]) {
      wattrset(stdscr, static_cast<int>(attributes_of(span.look, colour_)));
      waddnstr(stdscr, span.text.c_str(), static_cast<int>(span.text.size()));
    }
  }
  wattrset(stdscr, A_NORMAL);
  wrefresh(stdscr);
}

std::optional<Key> Screen::wait(bool* resized) {
  const int code = wgetch(stdscr);
  *resized = code == KEY_RESIZE;
  // What a terminal makes of its text when its size changes, differs from one to another.
  if (*resized) clearok(stdscr, true);
  if (code == ERR || *resized) return std::nullopt;
  return key_of(code);
}

bool Screen::interrupted() { return over != 0; }

}  // namespace gradring::tools::top

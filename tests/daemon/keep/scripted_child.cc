// What a keeper is given to keep: does what the words of its script say, another script in each of
// its lives, and notes in a file what it sees.
//
// usage: scripted_child NOTES SCRIPT...   the last script is for all further lives
//        scripted_child ... --check-config   2 where there is NOTES.wrong, and no end where
//        NOTES.slow
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string notes_path;

void note(const std::string& line) {
  const int file = open(notes_path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const std::string text = line + "\n";
  if (write(file, text.data(), text.size()) < 0) std::abort();
  close(file);
}

int lives_so_far() {
  std::ifstream notes(notes_path);
  int lives = 0;
  for (std::string line; std::getline(notes, line);) lives += line.rfind("life ", 0) == 0 ? 1 : 0;
  return lives;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "-" : value;
}

// NAME=CONTENT of every descriptor that was handed on, sorted; a socket's content is "socket".
void note_inherited() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(0, &names);
  std::vector<std::string> found;
  for (int i = 0; i < count; ++i) {
    const int fd = SD_LISTEN_FDS_START + i;
    struct stat status {};
    fstat(fd, &status);
    std::array<char, 64> content{};
    if (S_ISSOCK(status.st_mode)) {
      std::strcpy(content.data(), "socket");
    } else if (pread(fd, content.data(), content.size() - 1, 0) < 0) {
      std::strcpy(content.data(), "?");
    }
    found.push_back(std::string(names[i]) + "=" + content.data());
  }
  std::sort(found.begin(), found.end());
  std::string line = "kept";
  for (const std::string& one : found) line += " " + one;
  note(line);
}

void store(const std::string& name, const std::string& content, const std::string& more = "") {
  int fd = memfd_create("child", MFD_CLOEXEC);
  if (write(fd, content.data(), content.size()) < 0) std::abort();
  sd_pid_notify_with_fds(0, 0, ("FDSTORE=1\nFDNAME=" + name + more).c_str(), &fd, 1);
  close(fd);
}

volatile sig_atomic_t heard = 0;

void hear(int number) { heard = number; }

void wait_for_signal(const char* name) {
  while (heard == 0) usleep(1000);
  note(std::string(name) + " " + strsignal(heard));
}

// From a process that is not the keeper's child.
void from_a_stranger() {
  if (const pid_t pid = fork(); pid != 0) {
    waitpid(pid, nullptr, 0);
    return;
  }
  store("stranger", "x");
  _exit(0);
}

// A grandchild that ends when its parent has, so that process 1 has to wait for it.
pid_t leave_an_orphan() {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) std::abort();
  if (const pid_t parent = fork(); parent == 0) {
    const pid_t orphan = fork();
    if (orphan == 0) {
      usleep(20'000);
    } else if (write(ends[1], &orphan, sizeof orphan) < 0) {
      std::abort();
    }
    _exit(0);
  } else {
    waitpid(parent, nullptr, 0);
  }
  pid_t orphan = 0;
  if (read(ends[0], &orphan, sizeof orphan) < 0) std::abort();
  return orphan;
}

pid_t orphan = 0;

void obey(const std::string& word, std::istringstream& words) {
  const auto next = [&words] {
    std::string argument;
    words >> argument;
    return argument;
  };
  if (word == "ready") {
    sd_notify(0, "READY=1\nSTATUS=scripted");
  } else if (word == "store") {
    const std::string name = next();
    store(name, next());
  } else if (word == "store-many") {
    const int count = std::stoi(next());
    for (int i = 0; i < count; ++i) store("many." + std::to_string(i), "x", "\nFDPOLL=0");
  } else if (word == "store-pair") {  // whose other end is lost with this process
    std::array<int, 2> ends{};
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data());
    const std::string name = next();
    const std::string poll = next() == "poll" ? "" : "\nFDPOLL=0";
    sd_pid_notify_with_fds(0, 0, ("FDSTORE=1\nFDNAME=" + name + poll).c_str(), ends.data(), 1);
    close(ends[0]);
  } else if (word == "remove") {
    sd_notify(0, ("FDSTOREREMOVE=1\nFDNAME=" + next()).c_str());
  } else if (word == "say") {
    sd_notify(0, next().c_str());
  } else if (word == "stranger") {
    from_a_stranger();
  } else if (word == "orphan") {
    orphan = leave_an_orphan();
  } else if (word == "orphaned") {
    note(kill(orphan, 0) == 0 ? "orphan is a zombie" : "orphan is reaped");
  } else if (word == "barrier") {
    note(sd_notify_barrier(0, 5'000'000) > 0 ? "barrier passed" : "barrier failed");
  } else if (word == "feed") {  // for so many milliseconds
    const int milliseconds = std::stoi(next());
    for (int i = 0; i < milliseconds; i += 10) {
      sd_notify(0, "WATCHDOG=1");
      usleep(10'000);
    }
    note("fed");
  } else if (word == "catch") {
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, hear);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    note("catches");
    wait_for_signal("caught");
  } else if (word == "kill") {
    kill(getpid(), std::stoi(next()));
  } else if (word == "exit") {
    std::_Exit(std::stoi(next()));
  } else if (word == "stop") {
    kill(getpid(), SIGSTOP);
  } else if (word == "hang") {
    note("hangs");
    while (true) pause();
  } else {
    note("unknown word " + word);
  }
}

}  // namespace

int main(int argc, char** argv) {
  notes_path = argv[1];
  if (std::string(argv[argc - 1]) == "--check-config") {
    while (access((notes_path + ".slow").c_str(), F_OK) == 0) pause();
    return access((notes_path + ".wrong").c_str(), F_OK) == 0 ? 2 : 0;
  }
  const int life = lives_so_far() + 1;
  note("life " + std::to_string(life) + " pid " + std::to_string(getpid()) + " watchdog " +
       environment("WATCHDOG_USEC") + " fds " + environment("LISTEN_FDS") + " most " +
       environment("FDSTORE"));
  note_inherited();
  std::istringstream words(argv[std::min(life + 1, argc - 1)]);
  for (std::string word; words >> word;) obey(word, words);
  return 0;
}

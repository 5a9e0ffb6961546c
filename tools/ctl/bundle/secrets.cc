#include "tools/ctl/bundle/secrets.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace gradring::tools {
namespace {

constexpr std::string_view kTakenOut = "(taken out)";
constexpr size_t kKeyChars = 40;
constexpr size_t kSecretLeast = 16;  // shorter words of a key file are its comments

constexpr std::string_view kZ85 =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

std::string lower_of(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool is_z85(char c) { return kZ85.find(c) != std::string_view::npos; }

// "key=KEY" is one run of Z85's characters: what stands before the last sign may be a name.
size_t name_in(std::string_view run) {
  if (run.size() <= kKeyChars) return 0;
  const size_t before = run.size() - kKeyChars;
  const char sign = run[before - 1];
  return sign == '=' || sign == ':' ? before : 0;
}

// "GPU-" and its UUID, as much as a key: which GPU it was is what a bundle is to tell.
bool is_gpu(std::string_view text) {
  if (!text.starts_with("GPU-") && !text.starts_with("MIG-")) return false;
  for (size_t i = 4; i < text.size(); ++i) {
    const bool dash = i == 12 || i == 17 || i == 22 || i == 27;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0)
      return false;
  }
  return true;
}

std::string without_keys(std::string_view line) {
  std::string kept;
  while (!line.empty()) {
    const auto end = std::ranges::find_if_not(line, is_z85);
    const auto run = line.substr(0, static_cast<size_t>(end - line.begin()));
    const size_t name = name_in(run);
    if (run.size() - name == kKeyChars && !is_gpu(run.substr(name))) {
      kept += run.substr(0, name);
      kept += kTakenOut;
    } else {
      kept += run;
    }
    line.remove_prefix(run.size());
    if (line.empty()) break;
    kept += line.front();
    line.remove_prefix(1);
  }
  return kept;
}

std::string without_value(std::string_view line) {
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return std::string(line);
  const std::string name = lower_of(line.substr(0, equals));
  const bool secret = std::ranges::any_of(
      std::initializer_list<std::string_view>{"secret", "password", "token", "credential"},
      [&name](std::string_view word) { return name.find(word) != std::string::npos; });
  return secret ? std::string(line.substr(0, equals + 1)) + " " + std::string(kTakenOut)
                : std::string(line);
}

void take_out(std::string* text, const std::string& secret) {
  if (secret.empty()) return;
  for (size_t at = text->find(secret); at != std::string::npos; at = text->find(secret, at)) {
    text->replace(at, secret.size(), kTakenOut);
    at += kTakenOut.size();
  }
}

}  // namespace

std::string without_secrets(std::string_view text, const std::vector<std::string>& known) {
  std::string whole(text);
  for (const std::string& secret : known) take_out(&whole, secret);
  std::string kept;
  std::string_view rest = whole;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    kept += without_keys(without_value(rest.substr(0, end)));
    rest.remove_prefix(end);
    if (rest.empty()) break;
    kept += '\n';
    rest.remove_prefix(1);
  }
  return kept;
}

std::vector<std::string> secrets_of(std::string_view key_file) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(key_file)};
  for (std::string word; stream >> word;) {
    std::erase(word, '"');
    if (word.size() >= kSecretLeast) words.push_back(word);
  }
  return words;
}

}  // namespace gradring::tools
